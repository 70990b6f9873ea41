# SPDX-License-Identifier: Apache-2.0
"""A rank that takes one step when it is told to, and says what is in it.

A step is {"epoch", "step", "version", "items": of the valid rows, "marks": what made them, "rows":
of the batch, "state": the loader's after it}; the end of an epoch is {"end": the next one, "state"}.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from chaos import marked
from integration import ranks


class Stepper(ranks.Rank):
    """One process; its owner ends it by close()."""

    program = __file__


class Stepping(ranks.Served):
    """The child's side."""

    def do_step(self) -> dict[str, Any]:
        batch = self.take()
        state = self.loader.state_dict()
        if batch is None:
            return {"end": self.loader.epoch, "state": state}
        items = batch.indices[batch.valid].tolist()
        found = np.rint(batch["image"][batch.valid][:, 0, 0, :]).astype(int).tolist()
        if [marked.item(pixel) for pixel in found] != items:
            raise ValueError(
                f"epoch {batch.epoch} step {batch.step}: rows are {found}, not {items}"
            )
        return {
            "epoch": batch.epoch,
            "step": batch.step,
            "version": batch.pipeline_version,
            "items": items,
            "marks": sorted({marked.mark(pixel) for pixel in found}),
            "rows": len(batch.indices),
            "state": state,
        }

    def do_set_epoch(self, epoch: int) -> dict[str, Any]:
        self.do_break_off()
        self.loader.set_epoch(epoch)
        return {}

    def do_skip_steps(self, steps: int) -> dict[str, Any]:
        self.loader.skip_steps(steps)
        return {}


if __name__ == "__main__":
    Stepping(json.loads(sys.argv[1])).serve()

# SPDX-License-Identifier: Apache-2.0
"""A training rank as a process: reads its shard, looks at every pixel, writes down what it got.

Usage: rank.py '{"address": …, "pipeline": …, "job": …, "rank": 0, "world_size": 4, "log": …,
"stop": …, "work_ms": 20}'. It goes on behind the last line of its log, and ends with 0 before the
epoch whose number stands in the file "stop". Whatever is wrong ends it by an exception.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import sys
import time
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import kinds
import on_gpu
import spdld
from chaos import images, ledger

HELD = 2  # batches that it keeps beside the current one, as a trainer with async copies does
MOST_MAPPINGS = 6  # arenas that are mapped: the present one, one being left, and private views


def variant(batch: Any) -> bool | None:
    """Whether the rows are flipped; raises if a row is neither its item nor its item flipped."""
    kinds.check(batch)
    pictures = batch["image"]
    found = set()
    for row, index in enumerate(batch.indices.tolist()):
        if not batch.valid[row]:
            continue
        flips = [
            flip
            for flip in (False, True)
            if np.array_equal(pictures[row], images.expected(index, flip))
        ]
        if not flips:
            raise ValueError(
                f"epoch {batch.epoch} step {batch.step} row {row}: its pixels are not item "
                f"{index}'s"
            )
        found.add(flips[0])
    if len(found) > 1:
        raise ValueError(f"epoch {batch.epoch} step {batch.step}: rows of two versions")
    return found.pop() if found else None


def mappings() -> int:
    return sum("spdld-arena" in line for line in pathlib.Path("/proc/self/maps").open())


def recheck(batch: Any, flipped: bool | None) -> None:
    """A slot that was written to while it was leased shows here."""
    if variant(batch) != flipped:
        raise ValueError(f"epoch {batch.epoch} step {batch.step}: it changed while it was held")


def read_epochs(loader: spdld.Loader, options: dict[str, Any]) -> None:
    stop = pathlib.Path(options["stop"])
    held: collections.deque[tuple[Any, bool | None]] = collections.deque()
    with open(options["log"], "ab", buffering=0) as log:
        while not (stop.exists() and loader.epoch >= int(stop.read_text())):
            for batch in map(on_gpu.Shown, loader):
                flipped = variant(batch)
                valid = batch.valid.tolist()
                rows = batch.indices.tolist()
                if "part" in batch:
                    rows = [
                        index * images.PARTS + int(part)
                        for index, part in zip(rows, batch["part"], strict=True)
                    ]
                items = tuple(row for row, one in zip(rows, valid, strict=True) if one)
                entry = ledger.Entry(
                    batch.epoch, batch.step, items, batch.pipeline_version, flipped
                )
                # In one call: a kill leaves all of the line, or next to none of it.
                log.write(ledger.to_line(entry, loader.state_dict()))
                held.append((batch, flipped))
                if len(held) > HELD:
                    recheck(*held.popleft())
                time.sleep(options["work_ms"] / 1000)  # the training
            if (count := mappings()) > MOST_MAPPINGS:
                raise ValueError(f"{count} mappings of arenas after epoch {loader.epoch}")
        while held:
            recheck(*held.popleft())


def main() -> None:
    options = json.loads(sys.argv[1])
    state = ledger.resume(pathlib.Path(options["log"]))
    with spdld.Loader(
        options["pipeline"],
        job=options["job"],
        **on_gpu.loader_options(
            {name: options[name] for name in ("rank", "world_size", "address")}
        ),
    ) as loader:
        if state is not None:
            loader.load_state_dict(state)
        read_epochs(loader, options)
        print(f"pid {os.getpid()} done: {loader.epoch} epochs", flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""What `spdlctl consume --digest --per-row` prints, of batches as they lie on a GPU.

Its digests are others; they are equal where the bytes are.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import daemon as daemon_module
import on_gpu


def consume(daemon: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    """By whoever reads where the test's batches are delivered to."""
    if not on_gpu.is_on():
        return daemon.ctl("consume", *arguments)
    done = subprocess.run(
        [sys.executable, __file__, "--address", daemon.address, *arguments],
        capture_output=True,
        text=True,
        timeout=daemon_module.WATCHDOG_S,
    )
    assert done.returncode == 0, done.stderr
    return done


def row_bytes(row: Any) -> bytes:
    return row.encode() if isinstance(row, str) else np.asarray(row).tobytes()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pipeline")
    parser.add_argument("--address")
    for flag in ("--digest", "--per-row", "--print-cursor"):
        parser.add_argument(flag, action="store_true")
    for number in ("--rank", "--world-size", "--batches", "--batch-size"):
        parser.add_argument(number, type=int)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--cursor")
    asked = parser.parse_args()

    import spdld

    loader = spdld.Loader(
        asked.pipeline,
        job=f"digests-{os.getpid()}",
        rank=asked.rank,
        world_size=asked.world_size,
        batch_size=asked.batch_size,
        address=asked.address,
        device="cuda",
    )
    keys = ("order_digest", "seed", "epoch", "position", "step", "moves")
    if asked.cursor:
        digest, *numbers = asked.cursor.split(":")
        values = (digest, *map(int, numbers))
        state = dict(zip(keys, values, strict=False))
        loader.load_state_dict({"version": 1, "pipeline": asked.pipeline, **state})
    left = asked.batches or sys.maxsize
    for _ in range(asked.epochs):
        for batch in loader:
            show(on_gpu.Shown(batch), loader.shard)
            left -= 1
            if not left:
                break
        if not left:
            break
    if asked.print_cursor:
        state = loader.state_dict()
        print(":".join(str(state[key]) for key in keys if key in state), file=sys.stderr)


def show(batch: on_gpu.Shown, shard: int) -> None:
    fields = {name: batch[name] for name in sorted(batch)}
    for row, (index, valid) in enumerate(
        zip(batch.indices.tolist(), batch.valid.tolist(), strict=True)
    ):
        if not valid:
            continue
        digest = hashlib.sha256(b"".join(row_bytes(values[row]) for values in fields.values()))
        print(batch.epoch, batch.step, shard, row, index, digest.hexdigest()[:32])


if __name__ == "__main__":
    main()

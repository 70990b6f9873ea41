# SPDX-License-Identifier: Apache-2.0
"""One side of the comparison in a process of its own; prints one line of JSON.

side.py NAME OPTIONS_JSON run SECONDS WARMUP_SECONDS
side.py NAME OPTIONS_JSON hold        # loads until stdin closes; "ready" after some batches
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time

import processes
import sides

HOLD_BATCHES = 6  # enough that every worker and every slot has been used


def touch(batch: tuple[object, ...]) -> int:
    """Rows of the batch, after a look at its first and last value, so that both are mapped."""
    images = batch[0]
    flat = images.reshape(-1)
    _ = int(flat[0]) + int(flat[-1])
    return len(images)


def run(
    batches: sides.Batches, started: float, seconds: float, warmup: float, unit: str = "image"
) -> dict[str, float]:
    """`unit`: what a row of a batch is."""
    touch(next(batches))
    first_batch_s = time.monotonic() - started
    end = time.monotonic() + warmup
    while time.monotonic() < end:
        touch(next(batches))
    rows, cpu_before = 0, processes.cpu_seconds(os.getpid())
    begun = time.monotonic()
    while (now := time.monotonic()) - begun < seconds:
        rows += touch(next(batches))
    now = time.monotonic()
    cpu_s = processes.cpu_seconds(os.getpid()) - cpu_before
    return {
        f"{unit}s_per_s": rows / (now - begun),
        f"cpu_ms_per_{unit}": 1000 * cpu_s / rows,
        "pss_mb": processes.pss_bytes(os.getpid()) / 1e6,
        "first_batch_ms": 1000 * first_batch_s,
        f"{unit}s": rows,
    }


def hold(batches: sides.Batches) -> None:
    for _ in range(HOLD_BATCHES):
        touch(next(batches))
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        touch(next(batches))


def main(name: str, options_json: str, mode: str, *numbers: str) -> None:
    options = sides.Options(**json.loads(options_json))
    import_side, open_side = sides.SIDES[name]
    import_side()
    with contextlib.ExitStack() as stack:
        if name == "spdld" and not options.address:
            daemon = sides.start_daemon(options)
            stack.enter_context(daemon)
            options = sides.Options(**{**vars(options), "address": daemon.address})
        started = time.monotonic()
        batches = open_side(options)
        if mode == "hold":
            hold(batches)
        else:
            print(json.dumps(run(batches, started, *map(float, numbers))))
        batches.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

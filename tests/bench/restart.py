# SPDX-License-Identifier: Apache-2.0
"""./dev bench restart: how long training waits when the daemon is killed and started anew at once.

Four ranks first read as fast as they can: that is the daemon's capacity. Then each is paced so that
together they want a part of it (half); at random moments the daemon gets SIGKILL and is started
again with the same directories. Of each kill: how long until the new daemon says that it is ready,
the longest time between two batches in any rank from the kill to ten batches later, and by how
much that is longer than the median step just before, which is what training waits.

It fails if a rank misses or repeats a step, or if any row is not that of an uninterrupted reader.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import statistics
import sys
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from daemon import Daemon
from paced_job import RANKS, Batch, PacedJob, capacity, check_rows, gaps, machine

QUIET = 12  # steps before a kill; what was prefetched is there again
AFTER = 10  # batches after the kill that count
PIPELINE = """\
pipeline: bench
seed: 1
source: {{files: {{root: "{root}", pattern: "**/*", label: parent_dir}}}}
shuffle: global
stages:
  - fetch
  - decode_image
  - random_resized_crop: {{size: [224, 224]}}
  - random_horizontal_flip
  - normalize: {{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}
batch: {{size: {batch}}}
on_error: {{decode: fail}}
"""


class Kill(NamedTuple):
    quiet_from_s: float
    killed_s: float
    ready_s: float


def kill(daemon: Daemon, step_s: float, moment: float) -> Kill:
    """One, `moment` steps after the quiet ones; returns when all that counts has been read."""
    quiet_from_s = time.monotonic()
    time.sleep((QUIET + moment) * step_s)
    killed_s = time.monotonic()
    daemon.kill()
    daemon.start()
    ready_s = time.monotonic()
    time.sleep(2 * AFTER * step_s)
    return Kill(quiet_from_s, killed_s, ready_s)


def measure(given: list[list[Batch]], kill: Kill) -> tuple[float, float]:
    """The longest time between two batches, and the step before."""
    quiet = [gap for rank in given for gap in gaps(rank, kill.quiet_from_s, kill.killed_s)]
    around = []
    for rank in given:
        after = [batch.at_s for batch in rank if batch.at_s > kill.killed_s]
        around += gaps(rank, kill.killed_s, after[:AFTER][-1])
    return max(around), statistics.median(quiet)


def show(what: str, values_s: list[float]) -> None:
    print(
        f"{what:<40} median {statistics.median(values_s) * 1e3:6.0f} ms   "
        f"worst {max(values_s) * 1e3:6.0f} ms   ({len(values_s)})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench restart", description=__doc__)
    parser.add_argument("data", type=pathlib.Path, help="a directory of images by class")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="rows of a rank's step")
    parser.add_argument("--share", type=float, default=0.5, help="of the capacity that is wanted")
    parser.add_argument("--seconds", type=float, default=5, help="of measuring the capacity")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    arguments = parser.parse_args()
    root = arguments.data.resolve()
    moments = random.Random(arguments.seed)
    print(machine(), flush=True)
    with Daemon() as daemon:
        file = daemon.directory / "bench.yaml"
        file.write_text(PIPELINE.format(root=root, batch=arguments.batch))
        daemon.start()
        daemon.ctl("apply", "-f", file)
        rows = capacity(daemon, "unpaced", arguments.seconds)
        step_s = RANKS * arguments.batch / (arguments.share * rows)
        print(f"capacity {rows:.0f} rows/s, steps of {step_s * 1e3:.0f} ms", flush=True)
        with PacedJob(daemon, "run", step_s) as job:
            kills = [kill(daemon, step_s, moments.random()) for _ in range(arguments.kills)]
            given = job.finish()
        check_rows(daemon, root, given)
    found = [measure(given, one) for one in kills]
    show("from the kill to a daemon that is ready", [one.ready_s - one.killed_s for one in kills])
    show("longest time between two batches", [gap for gap, _ in found])
    show("of which training waits", [gap - step for gap, step in found])
    print(f"{sum(map(len, given))} batches of {RANKS} ranks: no row lost, none twice")
    print(machine())


if __name__ == "__main__":
    main()

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

import pathlib
import random
import statistics
import sys
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import machine
import paced_job
from daemon import Daemon
from paced_job import Batch, PacedJob, capacity, check_rows, gaps
from pipelines import write_training

QUIET = 12  # steps before a kill; what was prefetched is there again
AFTER = 10  # batches after the kill that count


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


def show_ms(what: str, values_s: list[float]) -> None:
    paced_job.show(what, [value * 1e3 for value in values_s], "{:6.0f} ms")


def main() -> None:
    arguments = paced_job.parse("restart", __doc__, kills=20)
    moments = random.Random(arguments.seed)
    print(machine.line(), flush=True)
    with Daemon() as daemon:
        file = write_training(daemon, arguments.data, arguments.batch)
        daemon.start()
        daemon.ctl("apply", "-f", file)
        rows = capacity(daemon, "unpaced", arguments.seconds)
        step_s = paced_job.step_at_share(arguments, rows)
        print(f"capacity {rows:.0f} rows/s, steps of {step_s * 1e3:.0f} ms", flush=True)
        with PacedJob(daemon, "run", step_s) as job:
            kills = [kill(daemon, step_s, moments.random()) for _ in range(arguments.kills)]
            given = job.finish()
        check_rows(daemon, arguments.data, given)
    found = [measure(given, one) for one in kills]
    show_ms(
        "from the kill to a daemon that is ready", [one.ready_s - one.killed_s for one in kills]
    )
    show_ms("longest time between two batches", [gap for gap, _ in found])
    show_ms("of which training waits", [gap - step for gap, step in found])
    paced_job.show_account(given)


if __name__ == "__main__":
    main()

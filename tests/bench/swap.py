# SPDX-License-Identifier: Apache-2.0
"""./dev bench swap: how long training waits when its pipeline is changed under it.

Four ranks first read as fast as they can: that is the daemon's capacity, the least of the versions
that follow. Then each is paced so that together they want a part of it (half), and the job is
changed at random moments, `--at now`, by turns to other random crops of the same size and to
another size. The gap of a swap is the longest time between two batches in any rank, from the
request to ten steps after the switch; the ratio is that to the median step just before. `quiet` is
the ratio of the longest of those steps, before which nothing happened: what the machine does by
itself. One more apply, whose first batch fails, must change nothing.

It fails if a rank misses or repeats a step, if the ranks change at different steps, or if any row
is not that of an uninterrupted reader.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import random
import statistics
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import machine
import paced_job
from daemon import Daemon
from paced_job import Batch, PacedJob, capacity, check_rows, gaps
from pipelines import write_training

AFTER = 10  # steps after the switch that still count
AHEAD = 6  # steps that may have been begun when a swap is asked for: prefetch and 2
VERSIONS = [
    ("scale=0.08", "size=224"),
    ("scale=0.25", "size=224"),
    ("scale=0.25", "size=192"),
]
FAILING = ("max_pixels=1",)


class Swap(NamedTuple):
    """One apply; `refusal` says why it changed nothing."""

    what: str
    quiet_from_s: float  # from here to the request nothing happens
    asked_s: float
    answered_s: float
    version: int
    point: tuple[int, int] | None
    refusal: str


class Measured(NamedTuple):
    step_s: float
    gap_s: float
    quiet_gap_s: float


class Swaps:
    """Applies to job 'run', one at a time, each between steps that nothing else disturbs."""

    def __init__(self, daemon: Daemon, file: pathlib.Path, step_s: float, seed: int) -> None:
        self._daemon = daemon
        self._file = file
        self._step_s = step_s
        self._random = random.Random(seed)

    def apply(self, variables: Iterable[str]) -> Swap:
        """Returns when the ranks have read all that counts."""
        quiet_from_s = time.monotonic()
        time.sleep((AHEAD + AFTER + self._random.uniform(0, 4)) * self._step_s)
        asked_s = time.monotonic()
        done = self._daemon.ctl(
            *("apply", "-f", self._file, *set_vars(variables), "-o", "json"),
            *("--job", "run", "--at", "now", "--allow-schema-change"),
            check=False,
        )
        answered_s = time.monotonic()
        time.sleep((AHEAD + AFTER + 6) * self._step_s)
        version, point = 0, None
        if done.returncode == 0:
            (job,) = json.loads(done.stdout)["jobs"]
            version, point = job["version"], (job["from"]["epoch"], job["from"]["step"])
        what = " ".join(variables)
        return Swap(what, quiet_from_s, asked_s, answered_s, version, point, done.stderr.strip())


def set_vars(variables: Iterable[str]) -> list[str]:
    return [word for one in variables for word in ("--var", one)]


def least_capacity(daemon: Daemon, file: pathlib.Path, when: str, seconds: float) -> float:
    found = []
    for number, version in enumerate(VERSIONS):
        daemon.ctl("apply", "-f", file, *set_vars(version))
        found.append(capacity(daemon, f"{when}-{number}", seconds))
    print(f"capacity {when}: {', '.join(f'{one:.0f}' for one in found)} rows/s", flush=True)
    return min(found)


def check_points(given: list[list[Batch]], swaps: list[Swap]) -> None:
    """Raises unless all ranks changed where the daemon said, and nowhere else."""
    said = [(swap.version, swap.point) for swap in swaps if swap.point]
    for rank, batches in enumerate(given):
        found = [
            (after.version, after.place)
            for before, after in itertools.pairwise(batches)
            if before.version != after.version
        ]
        if found != said:
            raise RuntimeError(f"rank {rank} changed at {found}, and not at {said}")


def measure(given: list[list[Batch]], swap: Swap) -> Measured:
    """Where nothing changes, it is the steps after the answer that count."""
    quiet = [gap for rank in given for gap in gaps(rank, swap.quiet_from_s, swap.asked_s)]
    around = []
    for rank in given:
        after = [
            batch.at_s
            for batch in rank
            if (batch.place >= swap.point if swap.point else batch.at_s > swap.answered_s)
        ]
        if len(after) <= AFTER:
            raise RuntimeError(
                "fewer than ten steps after a swap: the ranks were given less than they were paced "
                "for; the capacity, above, should be the same before and after"
            )
        around += gaps(rank, swap.asked_s, after[AFTER])
    return Measured(statistics.median(quiet), max(around), max(quiet))


def report(given: list[list[Batch]], swaps: list[Swap]) -> None:
    print("to                           at  apply ms  step ms  gap ms  ratio  quiet")
    found = [measure(given, swap) for swap in swaps]
    for swap, one in zip(swaps, found, strict=True):
        at = f"{swap.point[0]}/{swap.point[1]}" if swap.point else "refused"
        print(
            f"{swap.what:<22} {at:>8} {(swap.answered_s - swap.asked_s) * 1e3:9.0f} "
            f"{one.step_s * 1e3:8.1f} {one.gap_s * 1e3:7.1f} {one.gap_s / one.step_s:6.2f} "
            f"{one.quiet_gap_s / one.step_s:6.2f}"
        )
    ratios = [one.gap_s / one.step_s for swap, one in zip(swaps, found, strict=True) if swap.point]
    paced_job.show("gap of a swap / step", ratios)
    paced_job.show(
        "longest step without a swap / step", [one.quiet_gap_s / one.step_s for one in found]
    )


def main() -> None:
    arguments = paced_job.parse("swap", __doc__, swaps=9)
    print(machine.line(), flush=True)
    with Daemon() as daemon:
        file = write_training(daemon, arguments.data, arguments.batch)
        daemon.start()
        before = least_capacity(daemon, file, "before", arguments.seconds)
        step_s = paced_job.step_at_share(arguments, before)
        daemon.ctl("apply", "-f", file, *set_vars(VERSIONS[0]))
        with PacedJob(daemon, "run", step_s) as job:
            time.sleep(2 * AHEAD * step_s)
            swaps = Swaps(daemon, file, step_s, arguments.seed)
            versions = itertools.islice(itertools.cycle(VERSIONS), 1, 1 + arguments.swaps)
            done = [swaps.apply(version) for version in [*versions, FAILING]]
            given = job.finish()
        for swap in done[:-1]:
            if swap.refusal:
                raise RuntimeError(swap.refusal)
        if not done[-1].refusal:
            raise RuntimeError(f"{done[-1].what} should be refused")
        after = least_capacity(daemon, file, "after", arguments.seconds)
        check_points(given, done)
        check_rows(daemon, arguments.data, given)
    report(given, done)
    print(done[-1].refusal)
    share_after = arguments.share * before / after
    print(f"wanted: {arguments.share:.2f} of the capacity before, {share_after:.2f} of that after")
    paced_job.show_account(given, "all changed at the same steps; ")


if __name__ == "__main__":
    main()

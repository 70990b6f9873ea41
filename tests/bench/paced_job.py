# SPDX-License-Identifier: Apache-2.0
"""A job whose training steps take a given time: four ranks, each a process of its own."""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import select
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import machine
from daemon import Daemon
from pipelines import write_order

RANKS = 4


class Batch(NamedTuple):
    """One batch that a rank was given; `at_s` is the monotonic clock when next() returned."""

    at_s: float
    epoch: int
    step: int
    version: int
    indices: list[int]

    @property
    def place(self) -> tuple[int, int]:
        return self.epoch, self.step


class Rank:
    """One process that reads epoch after epoch, from its start until stop().

    A step keeps its batch for `step_s` seconds and computes nothing: it stands for a training step
    on an accelerator. With 0 the rank takes batches as fast as they come.
    """

    def __init__(self, step_s: float, **loader: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps({"step_s": step_s, **loader})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_for_first(self) -> None:
        """Until it has its first batch."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"a rank ended with {self._process.wait()}")

    def stop(self) -> None:
        """Asks it to end with the step that it is in."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def given(self) -> list[Batch]:
        """All that it was given, once it has ended by stop()."""
        assert self._process.stdout is not None
        lines = self._process.stdout.readlines()
        if self._process.wait() != 0:
            raise RuntimeError(f"a rank ended with {self._process.returncode}")
        return [Batch(*json.loads(line)) for line in lines]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class PacedJob:
    """The ranks of one job: they read from the start on until finish(), or the end of `with`."""

    def __init__(self, daemon: Daemon, job: str, step_s: float, pipeline: str = "bench") -> None:
        self._ranks = [
            Rank(
                step_s,
                pipeline=pipeline,
                address=daemon.address,
                job=job,
                rank=rank,
                world_size=RANKS,
            )
            for rank in range(RANKS)
        ]
        for rank in self._ranks:
            rank.wait_for_first()

    def finish(self) -> list[list[Batch]]:
        """What each was given."""
        for rank in self._ranks:
            rank.stop()
        return [rank.given() for rank in self._ranks]

    def __enter__(self) -> PacedJob:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self._ranks:
            rank.kill()


def capacity(daemon: Daemon, job: str, seconds: float) -> float:
    """Rows a second, with ranks that take batches as fast as they come."""
    with PacedJob(daemon, job, 0) as unpaced:
        from_s = time.monotonic()
        time.sleep(seconds)
        until_s = time.monotonic()
        given = unpaced.finish()
    rows = sum(
        len(batch.indices) for rank in given for batch in rank if from_s < batch.at_s <= until_s
    )
    return rows / (until_s - from_s)


def gaps(given: list[Batch], from_s: float, until_s: float) -> list[float]:
    """Of a rank: between batches, of which the later one came in this time."""
    return [
        after.at_s - before.at_s
        for before, after in itertools.pairwise(given)
        if from_s < after.at_s <= until_s
    ]


def check_rows(daemon: Daemon, root: pathlib.Path, given: list[list[Batch]]) -> None:
    """Raises unless each rank was given each step once, with an uninterrupted reader's rows."""
    size = len(given[0][0].indices)
    epochs = 1 + max(batch.epoch for batches in given for batch in batches)
    for rank, batches in enumerate(given):
        order = uninterrupted(daemon, root, size, rank, epochs)
        if [batch.place for batch in batches] != sorted(order)[: len(batches)]:
            raise RuntimeError(f"rank {rank} missed or repeated a step")
        for batch in batches:
            if batch.indices != order[batch.place]:
                raise RuntimeError(f"rank {rank} got other rows at {batch.place}")


def uninterrupted(
    daemon: Daemon, root: pathlib.Path, size: int, rank: int, epochs: int
) -> dict[tuple[int, int], list[int]]:
    import spdld

    daemon.ctl("apply", "-f", write_order(daemon, root, size))
    rows = {}
    with spdld.Loader(
        "order", address=daemon.address, job="order", rank=rank, world_size=RANKS
    ) as loader:
        for _ in range(epochs):
            for batch in loader:
                rows[batch.epoch, batch.step] = batch.indices.tolist()
    return rows


def parse(name: str, about: str | None, **disturbances: int) -> argparse.Namespace:
    """The arguments of `./dev bench NAME`, which disturbs a job so often by default."""
    (what,) = disturbances
    parser = argparse.ArgumentParser(prog=f"./dev bench {name}", description=about)
    parser.add_argument("data", type=directory, help="a directory of images by class")
    parser.add_argument(f"--{what}", type=int, default=disturbances[what])
    parser.add_argument("--batch", type=int, default=16, help="rows of a rank's step")
    parser.add_argument("--share", type=float, default=0.5, help="of the capacity that is wanted")
    parser.add_argument("--seconds", type=float, default=5, help="of measuring a capacity")
    parser.add_argument("--seed", type=int, default=1, help=f"of the moments of the {what}")
    return parser.parse_args()


def directory(text: str) -> pathlib.Path:
    return pathlib.Path(text).resolve()


def step_at_share(arguments: argparse.Namespace, capacity: float) -> float:
    """Seconds of a step, so that all ranks together want their share of these rows a second."""
    return RANKS * arguments.batch / (arguments.share * capacity)


def show(what: str, values: list[float], form: str = "{:5.2f}") -> None:
    median, worst = form.format(statistics.median(values)), form.format(max(values))
    print(f"{what:<40} median {median}   worst {worst}   ({len(values)})")


def show_account(given: list[list[Batch]], also: str = "") -> None:
    """The last lines, once check_rows() has not raised."""
    print(f"{sum(map(len, given))} batches of {RANKS} ranks: {also}no row lost, none twice")
    print(machine.line())


def read(step_s: float, loader: Any) -> list[Batch]:
    given: list[Batch] = []
    while True:
        for batch in loader:
            at_s = time.monotonic()
            if not given:
                print("first batch", flush=True)
            given.append(
                Batch(at_s, batch.epoch, batch.step, batch.pipeline_version, batch.indices.tolist())
            )
            if is_told_to_stop(step_s):  # the training step
                return given


def is_told_to_stop(within_s: float = 0) -> bool:
    """The parent closes stdin when it has seen enough."""
    return bool(select.select([sys.stdin], [], [], within_s)[0])


def main() -> None:
    import spdld

    options = json.loads(sys.argv[1])
    step_s = options.pop("step_s")
    with spdld.Loader(options.pop("pipeline"), **options) as loader:
        for batch in read(step_s, loader):
            print(json.dumps(batch))


if __name__ == "__main__":
    main()

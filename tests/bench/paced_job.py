# SPDX-License-Identifier: Apache-2.0
"""A job whose training steps take a given time: four ranks, each a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import platform
import select
import subprocess
import sys
import time
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from daemon import Daemon

RANKS = 4
# What an epoch's rows are, without their pixels; seed and shuffle are those of the pipelines that
# are measured.
ORDER = """\
pipeline: order
seed: 1
source: {{files: {{root: "{root}", pattern: "**/*", label: parent_dir}}}}
shuffle: global
stages: [fetch]
batch: {{size: {batch}, max_bytes: {max_bytes}}}
"""


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

    largest = max(path.stat().st_size for path in root.rglob("*") if path.is_file())
    file = daemon.directory / "order.yaml"
    file.write_text(ORDER.format(root=root, batch=size, max_bytes=largest * size))
    daemon.ctl("apply", "-f", file)
    rows = {}
    with spdld.Loader(
        "order", address=daemon.address, job="order", rank=rank, world_size=RANKS
    ) as loader:
        for _ in range(epochs):
            for batch in loader:
                rows[batch.epoch, batch.step] = batch.indices.tolist()
    return rows


def machine() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return (
        f"{next(models, platform.machine())}, {len(os.sched_getaffinity(0))} cores, "
        f"Linux {platform.release()}, load {os.getloadavg()[0]:.1f}"
    )


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
            # The training step. The parent closes stdin when it has seen enough.
            if select.select([sys.stdin], [], [], step_s)[0]:
                return given


def main() -> None:
    import spdld

    options = json.loads(sys.argv[1])
    step_s = options.pop("step_s")
    with spdld.Loader(options.pop("pipeline"), **options) as loader:
        for batch in read(step_s, loader):
            print(json.dumps(batch))


if __name__ == "__main__":
    main()

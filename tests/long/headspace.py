#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: `spdlctl headspace` beside four paced ranks: is the gain right, and all data as undisturbed?
# build: release spdld spdlctl spdld_python
"""headspace.py [--steps N] [CASE ...]: as root, as it mounts a file system.

Four ranks of one job read from storage that answers after a while, so that the data come at a known
pace, and hold each batch for the time of a step. Cases `waits_0`, `waits_20` and `waits_60`: ranks
wait so much of a step; the gain that is told must be within 5 points of what the ranks' own clocks
say. Cases `swap_`, `kill_` and `restart_`: while ranks are `held`, or while each `trains` on what lies ready,
the pipeline is changed, a rank is killed and comes back, or the daemon is killed and comes back. In
each, every rank must have read each row that it reads undisturbed, in order, without a gap; the rank
that was killed may read again what it had not given back."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import itertools
import json
import os
import pathlib
import select
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from daemon import Daemon, build_dir, wait_until
from integration.hung_mount import HungMount
from PIL import Image

RANKS, BATCH, IMAGES = 4, 4, 960
READ_S, READS = 0.02, 4
PERIOD_S = RANKS * BATCH * READ_S / READS  # the data of a step of each rank take so long
SETTLES_S, WATCHES_S = 3.0, 8.0
WITHIN = 0.05


class Step(NamedTuple):
    at_s: float
    epoch: int
    step: int
    version: int
    rows: list[str]

    @property
    def place(self) -> tuple[int, int]:
        return self.epoch, self.step


class Rank:
    """One process, which writes down its steps until it is stopped, or has read so many batches."""

    def __init__(self, file: pathlib.Path, step_s: float, batches: int, **loader: Any) -> None:
        self._file = file
        with file.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, __file__, json.dumps([step_s, batches, loader])],
                stdin=subprocess.PIPE,
                stdout=out,
                env={**os.environ, "PYTHONPATH": str(build_dir() / "python")},
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Asks it to end with the step that it is in."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.wait()

    def wait(self) -> None:
        if status := self._process.wait():
            raise RuntimeError(f"a rank ended with {status}")

    def given(self) -> list[Step]:
        lines = self._file.read_text().splitlines(keepends=True)
        return [Step(*json.loads(line)) for line in lines if line.endswith("\n")]


class Setting:
    """A daemon on slow storage, with job 'run'."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = pathlib.Path(tempfile.mkdtemp(dir=directory))
        self.stack = contextlib.ExitStack()
        at = self._directory / "mount"
        at.mkdir()
        self.stack.callback(HungMount(directory / "images", at, read_s=READ_S).close)
        self._at = at
        self.daemon = Daemon(
            pipelines=[self.write(READS)], settings={"executor": {"cpu_threads": 2}}
        )
        self.stack.callback(self.daemon.close)
        self.daemon.start()
        self.ranks: list[Rank] = []

    def write(self, reads: int, side: int = 32) -> pathlib.Path:
        path = self._directory / "paced.yaml"
        text = {
            "pipeline": "paced",
            "seed": 1,
            "source": {"files": {"root": str(self._at), "pattern": "*.jpg"}},
            "shuffle": "global",
            "stages": [
                {"fetch": {"concurrency": reads}},
                "decode_image",
                {"random_resized_crop": {"size": [side, side]}},
            ],
            "batch": {"size": BATCH},
        }
        path.write_text(json.dumps(text))
        return path

    def rank(
        self, job: str, rank: int, step_s: float, batches: int = 0, again: str = "", **more: Any
    ) -> Rank:
        more.update(pipeline="paced", address=self.daemon.address, job=job)
        more.update(rank=rank, world_size=RANKS)
        file = self._directory / f"{job}-{rank}{again}"
        started = Rank(file, step_s, batches, **more)
        self.stack.callback(started.kill)
        return started

    def start(self, step_s: float) -> None:
        self.ranks = [self.rank("run", rank, step_s) for rank in range(RANKS)]
        wait_until(lambda: all(rank.given() for rank in self.ranks), "a batch of each rank")
        time.sleep(SETTLES_S)

    def headspace(self, steps: int) -> dict[str, Any]:
        done = subprocess.run(
            [
                *(build_dir() / "bin/spdlctl", "--address", self.daemon.address),
                *("headspace", "run", "--steps", str(steps), "-o", "json"),
            ],
            capture_output=True,
            text=True,
        )
        return json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr}

    def in_a_round(self, trains: bool) -> bool:
        """The ranks have more slots than they had and are held, or they train on what lies ready."""
        sessions = self.daemon.ctl_json("get", "sessions")
        return len(sessions) == RANKS and all(
            session["credits"] > 8 and (session["leases"] > 16) == trains for session in sessions
        )

    def is_as_before(self) -> bool:
        sessions = self.daemon.ctl_json("get", "sessions")
        return len(sessions) == RANKS and all(session["credits"] == 4 for session in sessions)

    def check_rows(self, given: list[list[Step]]) -> None:
        """Raises unless each rank was given each step once and in order, as one that is undisturbed."""
        for version in sorted({step.version for steps in given for step in steps}):
            # Rows of one version do not hang on where the job changed to it.
            self.daemon.ctl("apply", "-f", str(self.write(64, 32 if version == 1 else 48)))
            batches = [1 + len(steps) for steps in given]
            readers = [
                self.rank(f"alone-{version}", rank, 0, count) for rank, count in enumerate(batches)
            ]
            for number, (reader, steps) in enumerate(zip(readers, given, strict=True)):
                reader.wait()
                alone = {step.place: step.rows for step in reader.given()}
                places = sorted(alone)[: len(steps)]
                if [step.place for step in steps] != places:
                    raise RuntimeError(f"rank {number} missed or repeated a step")
                for step in steps:
                    if step.version == version and step.rows != alone[step.place]:
                        raise RuntimeError(f"rank {number} read other rows at {step.place}")


def waits(of: Setting, share: float, steps: int) -> bool:
    step_s = PERIOD_S * (1 - share) if share else 1.5 * PERIOD_S
    of.start(step_s)
    from_s = time.monotonic()
    time.sleep(WATCHES_S)
    until_s = time.monotonic()
    gaps = [
        after.at_s - before.at_s
        for rank in of.ranks
        for before, after in itertools.pairwise(rank.given())
        if from_s < after.at_s <= until_s and before.epoch == after.epoch
    ]
    truth = max(0.0, 1 - step_s / statistics.mean(gaps))
    found = of.headspace(steps)
    wait_until(of.is_as_before, "slots as before")
    for rank in of.ranks:
        rank.stop()
    of.check_rows([rank.given() for rank in of.ranks])
    print(
        f"waits {share * 100:2.0f} %: truth {truth * 100:5.1f} %, told "
        f"{found.get('gain', -1) * 100:5.1f} %: {json.dumps(found)}",
        flush=True,
    )
    return not found.get("ended_by", "?") and abs(found["gain"] - truth) <= WITHIN


def disturbed(of: Setting, what: str, steps: int, trains: bool) -> bool:
    of.start(PERIOD_S / 2)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(of.headspace, steps)
        wait_until(lambda: of.in_a_round(trains), "a round")
        began = time.monotonic()
        if what == "swap":
            of.daemon.ctl("apply", "-f", str(of.write(READS, 48)), "--job", "run", *SWAPPED)
        elif what == "kill":
            of.ranks[1].kill()
        else:
            of.daemon.kill()
        found = asked.result()
        took_s = time.monotonic() - began
    if what == "restart":
        of.daemon.start()
    first = of.ranks[1].given()
    if what == "kill":
        of.ranks[1] = of.rank("run", 1, PERIOD_S / 2, 0, "-again", start="ledger")
    wait_until(of.is_as_before, "slots as before")
    time.sleep(SETTLES_S)
    for rank in of.ranks:
        rank.stop()
    given = [rank.given() for rank in of.ranks]
    repeated = 0
    if what == "kill":
        repeated = len([step for step in first if step.place >= given[1][0].place])
        given[1] = first[: len(first) - repeated] + given[1]
    of.check_rows(given)
    print(
        f"{what} while ranks {'train' if trains else 'are held'}: ended {took_s:.1f} s after it, "
        f"{repeated} batches read again, "
        f"{sum(map(len, given))} batches as undisturbed: {json.dumps(found)}",
        flush=True,
    )
    return "failed" in found if what == "restart" else bool(found["ended_by"])


SHARES = (0.0, 0.2, 0.6)
SWAPPED = ("--at", "now", "--allow-schema-change")
CASES = {
    **{f"waits_{share:.0%}".rstrip("%"): functools.partial(waits, share=share) for share in SHARES},
    **{
        f"{what}_{'trains' if trains else 'held'}": functools.partial(
            disturbed, what=what, trains=trains
        )
        for what in ("swap", "kill", "restart")
        for trains in (False, True)
    },
}


@contextlib.contextmanager
def data() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        images = pathlib.Path(name) / "images"
        images.mkdir()
        for index in range(IMAGES):
            coarse = np.random.default_rng(index).integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((64, 64)).save(images / f"{index:05}.jpg")
        yield pathlib.Path(name)


def read(step_s: float, batches: int, loader: Any) -> None:
    while True:
        for batch in loader:
            at_s = time.monotonic()
            rows = [f"{zlib.crc32(row.tobytes()):08x}" for row in np.asarray(batch["image"])]
            rows = [f"{index}:{row}" for index, row in zip(batch.indices, rows, strict=True)]
            step = Step(at_s, batch.epoch, batch.step, batch.pipeline_version, rows)
            print(json.dumps(step), flush=True)
            batches -= 1
            left_s = max(0.0, step_s - (time.monotonic() - at_s))
            if batches == 0 or (step_s and select.select([sys.stdin], [], [], left_s)[0]):
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - CASES.keys():
        parser.error(f"there is no case {sorted(unknown)}; there are: {', '.join(CASES)}")
    failed = []
    with data() as directory:
        for name in arguments.cases or CASES:
            setting = Setting(directory)
            with setting.stack:
                if not CASES[name](setting, steps=arguments.steps):
                    failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all held")
    return len(failed)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("["):
        import spdld

        pace, count, options = json.loads(sys.argv[1])
        with spdld.Loader(options.pop("pipeline"), **options) as opened:
            read(pace, count, opened)
    else:
        sys.exit(main())

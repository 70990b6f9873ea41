#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# build: release spdld spdlctl spdld_python
# does: ranks and spdlctl of one build at the daemon of another: attach, swap, restart, detach
"""builds.py [PROGRAMS PYTHON]: each row once, and the same with the builds exchanged.

PROGRAMS has the other build's spdld and spdlctl, PYTHON its package spdld, as wheels and packages
have them. Without them, these sources are built under another version, in build/other.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import daemon as daemon_module
from roots import MAKE_IMAGES, REPOSITORY, check, run

ITEMS, BATCH, RANKS = 448, 4, 2
STEPS = 12  # of each rank before something happens
VERSION = "9.8.7"
STAGES = ("[fetch, decode_image]", "[fetch, decode_image, {random_horizontal_flip: {p: 0.5}}]")
# Goes on to the next batch when it is told to.
READ = """
import json, sys, spdld
address, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with spdld.Loader("images", address=address, job="run", rank=rank, world_size=world) as loader:
    print(spdld.__file__, flush=True)
    for batch in loader:
        print(json.dumps([batch.pipeline_version, batch.indices.tolist()]), flush=True)
        sys.stdin.readline()
"""


@dataclasses.dataclass(frozen=True)
class Build:
    programs: pathlib.Path
    python: pathlib.Path

    def version(self, program: str) -> str:
        return run(self.programs / program, "--version").strip()


class Rank:
    def __init__(self, build: Build, address: str, rank: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READ, address, str(rank), str(RANKS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(build.python)},
        )
        self.rows: list[int] = []
        self.versions: list[int] = []
        package = self._process.stdout.readline()
        check(package.startswith(f"{build.python}/spdld/"), f"rank {rank} has {package.strip()}")

    def take(self, steps: int = ITEMS) -> None:
        """So many batches, or what is left of the epoch."""
        for _ in range(steps):
            if not (line := self._process.stdout.readline()):
                return
            version, rows = json.loads(line)
            self.versions.append(version)
            self.rows += rows
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def end(self) -> int:
        self._process.kill()
        return self._process.wait()

    def wait(self) -> int:
        return self._process.wait()


def other_build() -> Build:
    to = REPOSITORY / "build/other"
    to.mkdir(parents=True, exist_ok=True)
    (to / "version.cmake").write_text(f"set(PROJECT_VERSION {VERSION})\n")
    run(
        *("cmake", "--preset", "release", "-B", to, f"-DPython_EXECUTABLE={sys.executable}"),
        *("-DSPDLD_BUILD_TESTS=OFF", "-DSPDLD_BUILD_BENCHMARKS=OFF"),
        f"-DCMAKE_PROJECT_spdld_INCLUDE={to}/version.cmake",
        cwd=REPOSITORY,
    )
    subprocess.run(
        ["cmake", "--build", to, *("--target", "spdld", "spdlctl", "spdld_python")], check=True
    )
    version = to / "python/spdld/_version.py"
    version.unlink()
    version.write_text(f'__version__ = "{VERSION}"\n')
    return Build(to / "bin", to / "python")


def read_across(served_by: Build, read_by: Build, directory: pathlib.Path) -> None:
    print(f"{read_by.version('spdlctl')} and its package, at {served_by.version('spdld')}")
    file = directory / "images.yaml"

    def apply(stages: str, *options: str) -> None:
        file.write_text(
            f"pipeline: images\nsource: {{files: {{root: {directory}/images, pattern: '*.png'}}}}\n"
            f"shuffle: global\nstages: {stages}\nbatch: {{size: {BATCH}}}\n"
        )
        ctl("apply", "-f", str(file), *options)

    def ctl(*words: str) -> str:
        return run(read_by.programs / "spdlctl", "--address", daemon.address, *words)

    with daemon_module.Daemon(programs=served_by.programs) as daemon:
        daemon.start()
        apply(STAGES[0])
        ranks = [Rank(read_by, daemon.address, rank) for rank in range(RANKS)]
        try:
            for happens in (lambda: apply(STAGES[1], "--job=run", "--at=now"), daemon.kill):
                for rank in ranks:
                    rank.take(STEPS)
                happens()
            daemon.start()
            for rank in ranks:
                rank.take()
            check([rank.wait() for rank in ranks] == [0] * RANKS, "the ranks end and detach")
        finally:
            for rank in ranks:
                rank.end()
        check(json.loads(ctl("get", "sessions", "-o", "json")) == [], "no session is left")
        [job] = json.loads(ctl("get", "jobs", "--ended", "-o", "json"))
        check(job["end"]["how"] == "done", "the job ended as done")
    check(
        all(rank.versions == sorted(rank.versions) for rank in ranks)
        and all(set(rank.versions) == {1, 2} for rank in ranks),
        "they went on with the version that was swapped in",
    )
    rows = sorted(row for rank in ranks for row in rank.rows)
    check(rows == list(range(ITEMS)), f"across a kill, each row came once: {len(rows)} of {ITEMS}")


def main() -> int:
    build = daemon_module.build_dir()
    ours = Build(build / "bin", build / "python")
    if len(sys.argv) > 1:
        other = Build(*(pathlib.Path(given).resolve() for given in sys.argv[1:]))
    else:
        other = other_build()
        check(ours.version("spdld") != other.version("spdld"), "the builds have two versions")
    with tempfile.TemporaryDirectory(prefix="spdld-") as made:
        run(sys.executable, "-c", MAKE_IMAGES, f"{made}/images", str(ITEMS))
        read_across(ours, other, pathlib.Path(made))
        read_across(other, ours, pathlib.Path(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())

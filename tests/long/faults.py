#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: faults, one at a time, that keep training waiting: does `spdlctl diagnose` name each first?
# build: release spdld spdlctl spdld_python
"""faults.py [--rounds N] [FAULT ...]: as root, as it mounts file systems and makes a cgroup.

Each fault is set up with a daemon of its own, read for some seconds, and looked at with `spdlctl
diagnose`; where that names a `spdlctl tune`, it is run as it stands, and rows a second before and after
are told. Fails if less than 33 of 36 are named first, if something is named where there is no fault, or
if such a command does not make the job a fifth faster."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from daemon import Daemon, build_dir
from integration.hung_mount import HungMount
from PIL import Image

IMAGES, SIDE, BATCH = 2000, 512, 32
SETTLES_S = 8.0  # rates are of 10 s
LEAST_NAMED = 33 / 36
LEAST_GAIN = 1.2
CGROUPS = pathlib.Path("/sys/fs/cgroup")

# A rank that takes `steps` seconds for its steps, one after the other and again.
RANK = """
import itertools, json, sys, time
import spdld
options = json.loads(sys.argv[1])
paces = itertools.cycle(options.pop("steps"))
loader = spdld.Loader(**options)
while True:
    for batch in loader:
        if pause := next(paces): time.sleep(pause)
"""


def make_images(root: pathlib.Path, count: int, side: int, broken: int = 0) -> pathlib.Path:
    """`count` JPEGs; each `broken`th of them has no image data."""
    root.mkdir()
    for index in range(count):
        coarse = np.random.default_rng(index).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
        image.save(root / f"{index:05}.jpg")
        if broken and index % broken == 0:
            path = root / f"{index:05}.jpg"
            path.write_bytes(path.read_bytes()[:200])
    return root


class Setting:
    """One fault, with the daemon that has it."""

    def __init__(self, directory: pathlib.Path, data: pathlib.Path) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=directory))
        self.data = data
        self.stack = contextlib.ExitStack()
        self.stages: list[Any] = []
        self.settings: dict[str, Any] = {"executor": {"cpu_threads": 2}}
        self.more: dict[str, Any] = {}
        self.daemon: Daemon

    def mount(self, read_s: float, source: pathlib.Path) -> HungMount:
        at = self.directory / "mount"
        at.mkdir()
        mount = HungMount(source, at, read_s=read_s)
        self.stack.callback(mount.close)
        self.data = at
        return mount

    def write(self, *stages: Any) -> pathlib.Path:
        path = self.directory / "bench.yaml"
        text = {
            "pipeline": "bench",
            "source": {"files": {"root": str(self.data), "pattern": "*.jpg"}},
            "stages": list(stages),
            "batch": {"size": BATCH},
            **self.more,
        }
        path.write_text(json.dumps(text))
        return path

    def serve(self, *stages: Any) -> Daemon:
        self.daemon = Daemon(pipelines=[self.write(*stages)], settings=self.settings)
        self.stack.callback(self.daemon.close)
        return self.daemon.start()

    def read(self, job: str = "run", steps: tuple[float, ...] = (0,), **options: Any) -> None:
        options = {"name": "bench", "address": self.daemon.address, "job": job, **options}
        options["pipeline"] = options.pop("name")
        environment = {**os.environ, "PYTHONPATH": str(build_dir() / "python")}
        rank = subprocess.Popen(
            [sys.executable, "-c", RANK, json.dumps({"steps": steps, **options})], env=environment
        )
        self.stack.callback(rank.wait)
        self.stack.callback(rank.kill)

    def rate(self, job: str = "run") -> float:
        return float(self.daemon.ctl_json("get", "jobs", job)["rows_per_s"] or 0)

    def spin(self, count: int) -> None:
        for _ in range(count):
            loop = subprocess.Popen(["sh", "-c", "while :; do :; done"])
            self.stack.callback(loop.wait)
            self.stack.callback(loop.kill)


FETCH = "fetch"
DECODE: list[Any] = ["decode_image", {"resize": {"size": [224, 224]}}]


def slow_storage(of: Setting) -> None:
    of.mount(0.02, of.data.parent / "small")
    of.serve(FETCH, *DECODE)
    of.read()


def one_read(of: Setting) -> None:
    of.mount(0.003, of.data.parent / "small")
    of.serve({"fetch": {"concurrency": 1}}, *DECODE)
    of.read()


def two_io_threads(of: Setting) -> None:
    of.mount(0.005, of.data.parent / "small")
    of.settings["executor"]["io_threads"] = 2
    of.serve(FETCH, *DECODE)
    of.read()


def one_decode(of: Setting) -> None:
    of.serve(FETCH, {"decode_image": {"concurrency": 1}}, *DECODE[1:])
    of.read()


def slow_trainer(of: Setting) -> None:
    of.serve(FETCH, *DECODE)
    of.read(steps=(0.3,))


def slow_replica(of: Setting) -> None:
    of.serve(FETCH, *DECODE)
    for replica, step in enumerate((0.0, 0.2)):
        of.read(steps=(step,), shard=0, num_shards=1, replicas=2, replica=replica)


def little_weight(of: Setting) -> None:
    of.serve(FETCH, *DECODE)
    of.read()
    of.read("other", seed=7)
    time.sleep(1)
    of.daemon.ctl("tune", "other", "weight=9")


def short_prefetch(of: Setting) -> None:
    of.serve(FETCH, *DECODE)
    of.read(steps=(0,) * 12 + (0.1,), prefetch=2)


def corrupt(of: Setting) -> None:
    of.data = of.data.parent / "corrupt"
    of.more = {"on_error": {"decode": "replace", "budget": {"min": 1000}}}
    of.serve(FETCH, *DECODE)
    of.read()


def quota(of: Setting) -> None:
    of.serve(FETCH, *DECODE)
    cpu = next(path for path in (CGROUPS / "cpu", CGROUPS) if (path / "cgroup.procs").exists())
    group = cpu / f"spdld-faults-{os.getpid()}"
    group.mkdir()
    of.stack.callback(group.rmdir)
    of.stack.callback((cpu / "cgroup.procs").write_text, str(of.daemon.pid))
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text("30000 100000")
    else:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("30000")
    (group / "cgroup.procs").write_text(str(of.daemon.pid))
    of.read()


def busy_loops(of: Setting) -> None:
    of.serve(FETCH, *DECODE)
    of.read()
    of.spin(2)


def hung_mount(of: Setting) -> None:
    mount = of.mount(0, of.data)
    of.serve(FETCH, *DECODE)
    of.read()
    time.sleep(2)
    mount.hang()
    of.stack.callback(mount.let_go)


def no_fault(of: Setting) -> None:
    of.serve(FETCH, *DECODE)
    of.read(steps=(0.1,))


# The cause that is to be named first; none: nothing is.
FAULTS: dict[Callable[[Setting], None], str | None] = {
    slow_storage: "storage_latency",
    one_read: "fetch_concurrency",
    two_io_threads: "io_threads",
    one_decode: "stage_concurrency",
    slow_trainer: None,
    slow_replica: "slow_replica",
    little_weight: "other_jobs",
    short_prefetch: "prefetch",
    corrupt: "failing_data",
    quota: "cpu_quota",
    busy_loops: "contended_cores",
    hung_mount: "hung_storage",
    no_fault: None,
}


def run(fault: Callable[[Setting], None], directory: pathlib.Path) -> bool:
    setting = Setting(directory, directory / "images")
    with setting.stack:
        fault(setting)
        time.sleep(SETTLES_S)
        [found] = setting.daemon.ctl_json("diagnose", "run")
        causes = [finding["cause"] for finding in found["findings"]]
        first = causes[0] if causes else None
        named = first == FAULTS[fault]
        print(f"{fault.__name__:16} {'ok' if named else 'NO':3} {causes}", end="", flush=True)
        check_sums(setting.daemon)
        command = found["findings"][0]["command"] if named and first else ""
        if command.startswith("spdlctl tune "):  # others only look
            before = setting.rate()
            setting.daemon.ctl(*shlex.split(command)[1:])
            time.sleep(SETTLES_S + 4)
            after = setting.rate()
            print(f", {command}: {before:.0f} -> {after:.0f} rows/s", end="")
            named = named and after >= LEAST_GAIN * before
        print(flush=True)
        if not named:
            print(setting.daemon.ctl("diagnose", "run").stdout)
            print(json.dumps(setting.daemon.ctl_json("get", "sessions")[0]["shortages_lately"]))
            print(setting.daemon.ctl("status").stdout)
    return named


def check_sums(daemon: Daemon) -> None:
    """Workers' and ranks' time adds up to what has passed."""
    status = daemon.ctl_json("status")
    workers = status["workers"]
    spent = sum(workers[name] for name in workers if name not in ("core_s", "throttled_s"))
    passed = status["uptime_s"] * status["cpu_threads"]
    if not 0.98 <= spent / passed <= 1.02:
        raise RuntimeError(f"workers' time is {spent / passed:.3f} of what has passed")
    for session in daemon.ctl_json("get", "sessions"):
        shortages = session["shortages"]
        attached = shortages.pop("attached_s")
        if sum(shortages.values()) > 1.02 * attached:
            raise RuntimeError(f"a rank lacked {shortages} of {attached} s")


@contextlib.contextmanager
def data() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = pathlib.Path(name)
        make_images(directory / "images", IMAGES, SIDE)
        make_images(directory / "small", IMAGES, 32)
        make_images(directory / "corrupt", IMAGES, SIDE, broken=20)
        yield directory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("faults", nargs="*", metavar="FAULT")
    arguments = parser.parse_args()
    named = {of.__name__: of for of in FAULTS}
    if unknown := set(arguments.faults) - named.keys():
        parser.error(f"there is no fault {sorted(unknown)}; there are: {', '.join(named)}")
    chosen = [named[name] for name in arguments.faults or named]
    outcomes: dict[bool, list[bool]] = {True: [], False: []}
    with data() as directory:
        for _ in range(arguments.rounds):
            for fault in chosen:
                outcomes[fault is not no_fault].append(run(fault, directory))
    faulty, clean = outcomes[True], outcomes[False]
    print(
        f"{sum(faulty)} of {len(faulty)} named first, {sum(clean)} of {len(clean)} without a fault"
    )
    return 0 if sum(faulty) >= LEAST_NAMED * len(faulty) and all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())

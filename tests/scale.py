# SPDX-License-Identifier: Apache-2.0
"""What the long tests of large data share: cold files, the daemon's memory, its index, its restarts."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import time

import daemon as daemon_module
from daemon import Daemon

MIB = 2**20


def forget(paths: list[pathlib.Path]) -> None:
    """Drops the files from the page cache."""
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def first_batches(daemon: Daemon, pipeline: str, count: int = 1) -> None:
    daemon.ctl("consume", pipeline, "--digest", "--batches", str(count))


def index(daemon: Daemon, pipeline: pathlib.Path) -> float:
    began = time.monotonic()
    # Reading takes as long as the disk does.
    done = subprocess.run(
        [daemon_module.build_dir() / "bin/spdlctl", "--address", daemon.address]
        + ["--timeout", "3600", "index", "-f", pipeline],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"spdlctl index: {done.stderr}\n{daemon.log()}")
    return time.monotonic() - began


def restarts(daemon: Daemon, pipeline: str, count: int) -> list[float]:
    """Seconds from a killed daemon to the first batch of its successor, in order of size."""
    found = []
    for _ in range(count):
        daemon.kill()
        began = time.monotonic()
        daemon.start()
        first_batches(daemon, pipeline)
        found.append(time.monotonic() - began)
    return sorted(found)


def restarts_text(seconds: list[float]) -> str:
    return (
        f"restart to first batch: {seconds[len(seconds) // 2]:.3f} s, median of {len(seconds)}"
        f" ({seconds[0]:.3f} to {seconds[-1]:.3f})"
    )


@dataclasses.dataclass(frozen=True)
class Scale:
    """Times of an index and of restarts, the index's size, and the daemon's memory in bytes."""

    cold_s: float
    warm_s: float
    index_bytes: int
    empty: int
    indexed: int
    read: int
    again: int  # after the restarts
    restarts: list[float]

    def text(self) -> str:
        memory = [f"{size / MIB:.0f}" for size in (self.empty, self.indexed, self.read, self.again)]
        return (
            f"index: {self.cold_s:.2f} s cold, {self.warm_s:.2f} s with the page cache warm\n"
            "daemon: {} MiB empty, {} indexed, {} read, {} after a restart\n".format(*memory)
            + restarts_text(self.restarts)
        )


def measure(
    pipeline: pathlib.Path, files: list[pathlib.Path], suffix: str, batches: int, count: int
) -> Scale:
    """Of the pipeline `scale` over these files, whose index ends so; `count` restarts."""
    forget(files)
    with Daemon() as daemon:
        daemon.start()
        cold_s = index(daemon, pipeline)
    with Daemon() as daemon:
        daemon.start()
        empty = daemon.resident_bytes()
        warm_s = index(daemon, pipeline)
        indexed = daemon.resident_bytes()
        daemon.ctl("apply", "-f", pipeline)
        first_batches(daemon, "scale", batches)
        read = daemon.resident_bytes()
        kept = sum(file.stat().st_size for file in daemon.state_dir.glob(f"**/*{suffix}"))
        seconds = restarts(daemon, "scale", count)
        first_batches(daemon, "scale", batches)
        again = daemon.resident_bytes()
    return Scale(cold_s, warm_s, kept, empty, indexed, read, again, seconds)

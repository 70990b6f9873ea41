# SPDX-License-Identifier: Apache-2.0
"""What the long tests of large data share: cold files, the daemon's memory, its index, its restarts."""

from __future__ import annotations

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


def resident(pid: int) -> int:
    """What the daemon has but for shared memory: arenas lie there."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return (int(fields["VmRSS"].split()[0]) - int(fields["RssShmem"].split()[0])) << 10


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

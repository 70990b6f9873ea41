#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: one user's progressive images of 170 Mpixel beside another user's batches: memory, and gaps
# build: release
"""large_images.py [BATCHES]: how many batches of large images the greedy jobs read, 4 if not said.

Prints the daemon's growth against executor.decode_memory and the workers' allowances, and the other
job's longest wait for a batch; fails when the memory is more than it may be.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from daemon import Daemon, build_dir
from large_jpeg import progressive_jpeg

MIB = 2**20
CEILING = 768 * MIB
ALLOWANCE = 16 * MIB
MARGIN = 256 * MIB  # files, arenas of the greedy jobs, and what malloc keeps
THREADS = 4
GREEDY_JOBS = 2


def resident(pid: int, field: str) -> int:
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(field)) * 1024


def pipeline(directory: pathlib.Path, name: str, count: int, size: tuple[int, int]) -> pathlib.Path:
    root = directory / name / "all"
    root.mkdir(parents=True)
    first = root / "0.jpg"
    first.write_bytes(progressive_jpeg(*size))
    for index in range(1, count):
        os.link(first, root / f"{index}.jpg")
    path = directory / f"{name}.yaml"
    path.write_text(
        json.dumps(
            {
                "pipeline": name,
                "source": {"files": {"root": str(root.parent), "pattern": "**/*.jpg"}},
                "stages": ["fetch", "decode_image", {"resize": {"size": [32, 32]}}],
                "batch": {"size": 4, "last": "drop", "layout": "NCHW"},
            }
        )
    )
    return path


def consume(daemon: Daemon, *arguments: str) -> subprocess.Popen[str]:
    command = [build_dir() / "bin/spdlctl", "--address", daemon.address, "consume", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main() -> int:
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    with tempfile.TemporaryDirectory(prefix="spdld-large-") as scratch:
        directory = pathlib.Path(scratch)
        files = [
            pipeline(directory, "greedy", 4 * batches, (14600, 11650)),
            pipeline(directory, "modest", 4096, (320, 240)),
        ]
        settings = {"executor": {"cpu_threads": THREADS, "decode_memory": CEILING}}
        with Daemon(pipelines=files, settings=settings) as daemon:
            daemon.start()
            before = resident(daemon.pid, "VmRSS")
            greedy = [consume(daemon, "greedy", "--job", f"j{i}") for i in range(GREEDY_JOBS)]
            modest = consume(daemon, "modest", "--digest", "--epochs", "1000")
            gaps, last = [], time.monotonic()
            assert modest.stdout is not None
            while any(job.poll() is None for job in greedy) and modest.stdout.readline():
                gaps.append(time.monotonic() - last)
                last += gaps[-1]
            modest.kill()
            modest.communicate()
            failed = [job.wait() for job in greedy]
            grown = resident(daemon.pid, "VmHWM") - before
            failures = daemon.ctl_json("get", "failures")
    bound = CEILING + THREADS * ALLOWANCE + MARGIN
    print(
        f"memory: {grown / MIB:.0f} MiB more than before, of {bound / MIB:.0f} MiB that it may be\n"
        f"the other job: {len(gaps)} batches, longest wait {max(gaps):.2f} s"
    )
    return 1 if any(failed) or failures or grown > bound else 0


if __name__ == "__main__":
    sys.exit(main())

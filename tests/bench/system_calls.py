# SPDX-License-Identifier: Apache-2.0
"""System calls of a loader and of all its processes, counted by perf where it may look."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "images"))
import processes
import side
import sides

COUNTED_S = 1.0
# It counts nothing until it is told to.
PERF = ("perf", "stat", "-x,", "-D", "-1", "-e", "raw_syscalls:sys_enter")


def key(unit: str) -> str:
    return f"calls_per_{unit}"


def count(batches: sides.Batches, unit: str) -> dict[str, float]:
    """Of a row of the next batches; nothing where perf is not there or may not."""
    if shutil.which("perf") is None:
        return {}
    pids = ",".join(str(process.pid) for process in processes.tree(os.getpid()))
    told, tell = os.pipe()
    answers, answer = os.pipe()
    with tempfile.NamedTemporaryFile(prefix="perf-") as out, os.fdopen(answers) as answered:
        perf = subprocess.Popen(
            [*PERF, "-o", out.name, "--control", f"fd:{told},{answer}", "-p", pids],
            stderr=subprocess.DEVNULL,
            pass_fds=(told, answer),
        )
        os.close(answer)
        os.write(tell, b"enable\n")
        if not answered.readline():
            return {}
        rows, end = 0, time.monotonic() + COUNTED_S
        while time.monotonic() < end:
            rows += side.touch(next(batches))
        os.write(tell, b"disable\n")
        answered.readline()
        perf.send_signal(signal.SIGINT)
        perf.wait()
        os.close(tell)
        os.close(told)
        lines = pathlib.Path(out.name).read_text().splitlines()
    counts = [line.split(",")[0] for line in lines if "sys_enter" in line]
    return {key(unit): int(counts[0]) / rows} if counts and counts[0].isdigit() else {}

# SPDX-License-Identifier: Apache-2.0
"""What the figures of a benchmark were measured on, and what a process has spent of it."""

from __future__ import annotations

import os
import pathlib
import platform


def cpu() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def line() -> str:
    """All in one, with the load at present."""
    return (
        f"{cpu()}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def cpu_s(pid: int) -> float:
    """What a process has spent so far, in all its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

# SPDX-License-Identifier: Apache-2.0
"""What a process and all its descendants cost: CPU time and memory."""

from __future__ import annotations

import contextlib
import pathlib
import re

import psutil


def tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree, of those that ended and were waited for too."""
    total = 0.0
    for process in tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def pss_bytes(pid: int) -> int:
    """Proportional set size of the tree: a page shared by n processes counts 1/n in each."""
    total = 0
    for process in tree(pid):
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            text = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
            total += int(found.group(1)) * 1024 if found else 0
    return total

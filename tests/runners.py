# SPDX-License-Identifier: Apache-2.0
"""The processes that run users' functions for a daemon."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal


def of(address: str) -> dict[int, int]:
    """By the pid of each: its parent's."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if any(b"spdld.runner" in word for word in command) and address.encode() in command:
                found[int(entry.name)] = int((entry / "stat").read_text().rsplit(")")[1].split()[1])
    return found


def supervisors(address: str) -> list[int]:
    found = of(address)
    return [pid for pid, parent in found.items() if parent not in found]


def kill_supervisors(address: str) -> None:
    for pid in supervisors(address):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

# SPDX-License-Identifier: Apache-2.0
"""Names of the threads of another process."""

from __future__ import annotations

import contextlib
import pathlib


def threads_of(pid: int) -> list[str]:
    names = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # one that has just ended
            names.append((task / "comm").read_text().strip())
    return names

# SPDX-License-Identifier: Apache-2.0
"""The programs spdld and spdlctl, with the libraries that they need: see `spdld --help`."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import NoReturn


def _become(name: str) -> NoReturn:
    program = Path(__file__).parent / "bin" / name
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        why = error.strerror
        if error.errno == errno.EACCES:
            why += ": it lies on a file system that is mounted noexec, or belongs to another user"
        sys.exit(f"{name}: cannot start {program}: {why}")


def spdld() -> NoReturn:
    _become("spdld")


def spdlctl() -> NoReturn:
    _become("spdlctl")

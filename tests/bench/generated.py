# SPDX-License-Identifier: Apache-2.0
"""Media of ffmpeg's own generators, which benchmarks make once and then keep."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from daemon import REPOSITORY


def ffmpeg(*arguments: object) -> None:
    command = ["ffmpeg", "-nostdin", "-loglevel", "error", "-y", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def kept(name: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """The directory that `make` has filled, in this call or in an earlier one.

    `name` says all that its contents depend on. A half-filled one is never taken for whole.
    """
    directory = REPOSITORY / "build/bench/data" / name
    if not directory.exists():
        new = directory.with_name(directory.name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        make(new)
        new.rename(directory)
    return directory

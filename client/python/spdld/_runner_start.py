# SPDX-License-Identifier: Apache-2.0
"""Starts the processes that call this user's functions (spdld.runner) when the daemon asks for it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable

from ._launch import SYSTEM_DIRECTORY

_log = logging.getLogger("spdld")


def starter(address: str) -> Callable[[str], None]:
    """What starts one for the daemon there, given its pool."""
    where = address or os.environ.get("SPDLD_ADDRESS") or SYSTEM_DIRECTORY

    def start(pool: str) -> None:
        # It imports what this process could, and outlives it.
        command = [sys.executable, "-m", "spdld.runner", "--address", where, "--pool", pool]
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        try:
            subprocess.run(
                [*command, "--detach", str(os.getpid())],
                env=os.environ | {"PYTHONPATH": path},
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("%s could not be started: %s", " ".join(command), error)

    return start

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
# As `python -m spdld.runner`, which would import from the working directory first.
_RUN = "import sys; del sys.path[0]; from spdld.runner import main; sys.exit(main())"


def starter(address: str) -> Callable[[str], None]:
    """What starts one for the daemon there, given its pool."""
    where = address or os.environ.get("SPDLD_ADDRESS") or SYSTEM_DIRECTORY

    def start(pool: str) -> None:
        # It imports what this process could, and outlives it.
        options = ["--address", where, "--pool", pool]
        try:
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path if type(entry) is str)
            subprocess.run(
                [sys.executable, "-c", _RUN, *options, "--detach", str(os.getpid())],
                env=os.environ | {"PYTHONPATH": path},
                check=True,
            )
        except Exception as error:  # training waits, and is told the command
            _log.warning("python -m spdld.runner %s: %s", " ".join(options), error)

    return start

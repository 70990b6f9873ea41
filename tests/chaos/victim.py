# SPDX-License-Identifier: Apache-2.0
"""The two kinds of processes that a chaos run kills, each through all its lives."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import daemon as daemon_module
from support import launchers

TAIL_LINES = 30
NO_DAEMON = "spdld._errors.ConnectionError: no spdld daemon answers at"


class DaemonVictim(daemon_module.Daemon):
    """A daemon that tells deaths of its own from those that it was given."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        # AddressSanitizer keeps 256 MB of what was freed, which would count as a leak.
        given = self._environment.get("ASAN_OPTIONS", "")
        self._environment["ASAN_OPTIONS"] = f"quarantine_size_mb=8:{given}"
        self._given = True  # not started, or ended by its owner
        self.armed = False  # may die at a failpoint

    def arm(self, failpoints: str) -> None:
        """For the lives from the next start() on; "" disarms."""
        self.armed = bool(failpoints)
        self._environment["SPDLD_FAILPOINTS"] = failpoints

    def start(self) -> DaemonVictim:
        self._given = True  # what goes wrong here is told by an exception
        super().start()
        self._given = False
        return self

    def stop(self) -> int:
        self._given = True
        return super().stop()

    def kill(self) -> None:
        self._given = True
        super().kill()

    def died(self) -> int | None:
        """Its status, if it has ended and nobody made it."""
        if self._given or self._process is None:
            return None
        return self._process.poll()


class RankVictim:
    """One rank; its record and what it printed lie in `directory`."""

    def __init__(self, directory: pathlib.Path, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self.log = directory / f"{name}.ledger"
        self.lives = 0
        self._size_at_start = 0
        self._output = directory / f"{name}.out"
        self._options = {**options, "log": str(self.log)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.lives += 1
        self._size_at_start = self.size()
        environment = launchers.environment_without()
        environment["PYTHONPATH"] = str(daemon_module.build_dir() / "python")
        program = pathlib.Path(__file__).with_name("rank.py")
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-u", program, json.dumps(self._options)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} is not started"
        return self._process

    @property
    def killed(self) -> bool:
        """Until it is started again."""
        return self._process is None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def size(self) -> int:
        """Of its record, in bytes."""
        return self.log.stat().st_size if self.log.exists() else 0

    def found_no_daemon(self) -> bool:
        """Whether it ended because no daemon was there for the first seconds of this life."""
        said = self.tail().rpartition("\n")[2]
        return self.size() == self._size_at_start and said.startswith(NO_DAEMON)

    def tail(self) -> str:
        text = self._output.read_text(errors="replace") if self._output.exists() else ""
        return "\n".join(text.splitlines()[-TAIL_LINES:])

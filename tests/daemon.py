# SPDX-License-Identifier: Apache-2.0
"""A real spdld in a directory of its own, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
WATCHDOG_S = 60.0


def build_dir() -> pathlib.Path:
    return pathlib.Path(os.environ.get("SPDLD_BUILD_DIR", REPOSITORY / "build/release"))


def wait_until(holds: Callable[[], Any], what: str) -> Any:
    """The first true value of holds(); fails if none comes within the watchdog's time."""
    deadline = time.monotonic() + WATCHDOG_S
    while not (value := holds()):
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)
    return value


def has_failpoints() -> bool:
    """Whether it was built to die where it is told to: server/base/failpoint.h."""
    return b"SPDLD_FAILPOINTS: '" in (build_dir() / "bin/spdld").read_bytes()


class Daemon:
    """One spdld process, started by start(), ended by stop() or kill(); close() removes all traces.

    It has its own runtime and state directories, which survive a restart: start() after kill() is
    what a crash looks like to clients. With `uid` (for root alone) it runs as that user, to whom
    the directories belong. `programs` is the directory of spdld and spdlctl, if it is not the
    build's. Not thread-safe.
    """

    def __init__(
        self,
        *,
        pipelines: list[pathlib.Path] | None = None,
        settings: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        uid: int | None = None,
        programs: pathlib.Path | None = None,
    ) -> None:
        # Socket paths are limited to 107 bytes, which a test's own directory may well use up.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="spdld-", dir="/tmp"))
        self.runtime_dir = self.directory / "run"
        self.state_dir = self.directory / "state"
        self.log_file = self.directory / "log"
        self.config_file = self.directory / "spdld.yaml"
        for directory in (self.runtime_dir, self.state_dir):
            directory.mkdir(mode=0o700)
        self._uid = uid
        self._programs = programs or build_dir() / "bin"
        if uid is not None:
            for directory in (self.directory, self.runtime_dir, self.state_dir):
                os.chown(directory, uid, uid)
        self.configure(pipelines=pipelines or [], settings=settings or {})
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, *, pipelines: list[pathlib.Path], settings: dict[str, Any]) -> None:
        """Rewrites the configuration; it is read by the next start() or SIGHUP."""
        config = {
            "runtime_dir": str(self.runtime_dir),
            "state_dir": str(self.state_dir),
            "pipelines": [str(path) for path in pipelines],
            "access": {"roots": ["/"]},
            **settings,
        }
        self.config_file.write_text(json.dumps(config, indent=2))  # JSON is YAML

    @property
    def address(self) -> str:
        return str(self.runtime_dir)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the daemon is not running"
        return self._process.pid

    def resident_bytes(self) -> int:
        """What it has but for shared memory: arenas lie there."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return (int(fields["VmRSS"].split()[0]) - int(fields["RssShmem"].split()[0])) << 10

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it has logged; a thread of its own writes that, a moment after it happened."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def await_log(self, text: str) -> None:
        """Returns when the log holds this text; raises with the log if that does not come."""
        try:
            wait_until(lambda: text in self.log(), f"{text!r} in the log")
        except AssertionError as timeout:
            raise RuntimeError(f"{timeout}; the log:\n{self.log()}") from None

    def start(self, log_to: int | None = None) -> Daemon:
        """Returns when the daemon has said READY=1; raises with its log if it ends or stays mute.

        With `log_to`, this descriptor gets the log instead of the file.
        """
        assert not self.running, "the daemon runs already"
        notify_path = self.directory / "notify"
        notify_path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(notify_path))
            notify_path.chmod(0o666)
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    [self._program(), "--config", self.config_file],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log if log_to is None else log_to,
                    env={**self._environment, "NOTIFY_SOCKET": str(notify_path)},
                    start_new_session=True,
                    **self._as_user(),
                )
            self._await_ready(notify)
        return self

    def _program(self) -> pathlib.Path:
        built = self._programs / "spdld"
        if self._uid is None:
            return built
        # The checkout may lie where only its owner may go.
        copy = self.directory / "spdld"
        if not copy.exists():
            shutil.copy(built, copy)
        return copy

    def _as_user(self) -> dict[str, Any]:
        if self._uid is None:
            return {}
        return {"user": self._uid, "group": self._uid, "extra_groups": []}

    def _await_ready(self, notify: socket.socket) -> None:
        deadline = time.monotonic() + WATCHDOG_S
        death = os.pidfd_open(self.pid)
        try:
            while (left := deadline - time.monotonic()) > 0:
                ready, _, _ = select.select([notify, death], [], [], left)
                if notify in ready:
                    if b"READY=1" in notify.recv(4096).splitlines():
                        return
                elif death in ready:
                    code = self._process.wait() if self._process else None
                    raise RuntimeError(f"spdld ended with {code} at its start:\n{self.log()}")
        finally:
            os.close(death)
        self.kill()
        raise RuntimeError(f"spdld was not ready within {WATCHDOG_S:.0f} s:\n{self.log()}")

    def ctl(
        self, *arguments: str | os.PathLike[str], check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs spdlctl against this daemon; with `check`, a failure raises with what it printed."""
        done = subprocess.run(
            [self._programs / "spdlctl", "--address", self.address, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WATCHDOG_S,
            env=self._environment,
        )
        if check and done.returncode != 0:
            raise RuntimeError(
                f"spdlctl {' '.join(map(str, arguments))} ended with {done.returncode}:\n"
                f"{done.stdout}{done.stderr}\nThe daemon's log:\n{self.log()}"
            )
        return done

    def ctl_json(self, *arguments: str | os.PathLike[str]) -> Any:
        return json.loads(self.ctl(*arguments, "-o", "json").stdout)

    def record(self, job: str) -> dict[str, Any]:
        """What state_dir has of a job: what a daemon that is killed now begins with."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self.state_dir}/spdld.sqlite?mode=ro", uri=True)
        ) as store:
            [(state,)] = store.execute("SELECT state FROM jobs WHERE job = ?", (job,)).fetchall()
        return json.loads(state)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(WATCHDOG_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit status. A daemon that does not stop is killed and reported."""
        self.signal(signal.SIGTERM)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"spdld did not stop on SIGTERM:\n{self.log()}") from None

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def desert(self) -> subprocess.Popen[bytes]:
        """The process, which has died and cannot end: start() starts another one in its place."""
        assert self._process is not None
        dead, self._process = self._process, None
        return dead

    def restart(self) -> Daemon:
        if self.running:
            self.stop()
        return self.start()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

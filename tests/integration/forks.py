# SPDX-License-Identifier: Apache-2.0
"""Programs in Python that begin with numpy and the client imported, which is most of what a rank costs.

A process that has imported both forks one child for each program. It ends with whoever started it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

# What a process reads but once, when it starts.
READ_AT_START = ("LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_ARENA_MAX", "PYTHONPATH")
MOST_BYTES = 1 << 20  # of a request: an environment is most of it


class Fork:
    """A child, with what a subprocess.Popen of its own session has of methods."""

    def __init__(self, forks: _Forks, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.stdin = os.fdopen(stdin, "wb")
        self.stdout = os.fdopen(stdout, "rb")
        self._forks = forks
        self._status: int | None = None

    def send_signal(self, number: int) -> None:
        if self._status is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Its exit status, or its signal as a negative number."""
        if self._status is None:
            self._status = self._forks.ask({"wait": self.pid})
        return self._status


class _Forks:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def ask(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            answer = self._socket.recv(64)
        assert answer, "the process that forks ranks has ended"
        return int(answer)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def _forks(read_at_start: tuple[tuple[str, str], ...]) -> _Forks:
    others = {name: value for name, value in os.environ.items() if name not in READ_AT_START}
    return _Forks({**others, **dict(read_at_start)})


def start(program: str | pathlib.Path, argument: str, environment: Mapping[str, str]) -> Fork:
    """Python runs the program with one argument, unbuffered pipes and all of the environment."""
    read = ((name, environment[name]) for name in READ_AT_START if name in environment)
    forks = _forks(tuple(read))
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    request = {"run": str(program), "argument": argument, "environment": dict(environment)}
    pid = forks.ask(request, (stdin, stdout, 2))
    os.close(stdin)
    os.close(stdout)
    return Fork(forks, pid, to_stdin, from_stdout)


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """In the child: what a process of the program is, before its first line."""
    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.argv = [request["run"], request["argument"]]
    sys.path[0] = str(pathlib.Path(request["run"]).parent)


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Until its owner hangs up; in a child, what it is to run."""
    statuses: dict[int, int] = {}
    while True:
        data, fds, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not data:
            return None
        request = json.loads(data)
        if "run" in request:
            pid = os.fork()
            if pid == 0:
                requests.close()
                _become(request, fds)
                return request
            for fd in fds:
                os.close(fd)
            answer = pid
        else:
            pid = request["wait"]
            if pid not in statuses:
                statuses[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            answer = statuses[pid]
        with contextlib.suppress(BrokenPipeError):
            requests.send(str(answer).encode())


if __name__ == "__main__":
    import numpy as np  # noqa: F401
    import spdld  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner's to answer
    with socket.socket(fileno=int(sys.argv[1])) as given:
        to_run = _serve(given)
    if to_run is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        runpy.run_path(to_run["run"], run_name="__main__")

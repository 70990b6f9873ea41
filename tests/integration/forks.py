# SPDX-License-Identifier: Apache-2.0
"""Programs in Python that begin with numpy and the client imported, which is most of what a rank costs.

A server process has imported both, and forks a child for each program. It ends with the process that
started it. A child has its own session, pipes and environment; /proc shows the server's environment
and command line for it. multiprocessing's fork server would do the same, but nobody waits for it, so
that what ranks cost would be counted nowhere.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

# What a process reads but once, when it starts.
READ_AT_START = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
MOST_BYTES = 1 << 20  # of a request: an environment is most of it


class Fork:
    """A child: what ranks need of subprocess.Popen."""

    def __init__(self, server: ForkServer, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.stdin = os.fdopen(stdin, "wb")
        self.stdout = os.fdopen(stdout, "rb")
        self._server = server
        self._end = os.pidfd_open(pid)
        self._status: int | None = None

    def send_signal(self, number: int) -> None:
        if self._status is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Its exit status, or its signal as a negative number."""
        if self._status is None:
            select.select([self._end], [], [])
            self._status = self._server.ask({"wait": self.pid})
            os.close(self._end)
        return self._status


class ForkServer:
    """Its owner's side. Each request brings a pipe for its answer, so that any thread may ask."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def ask(self, request: dict[str, Any], *fds: int) -> int:
        answer, theirs = os.pipe()
        with os.fdopen(answer, "rb") as given:
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], [theirs, *fds])
            except OSError as error:
                raise RuntimeError("the process that forks ranks has ended") from error
            finally:
                os.close(theirs)
            number = given.read()
        if not number:
            raise RuntimeError(f"the process that forks ranks has failed at {request}")
        return int(number)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def _server(read_at_start: tuple[tuple[str, str], ...]) -> ForkServer:
    others = {name: value for name, value in os.environ.items() if name not in READ_AT_START}
    return ForkServer({**others, **dict(read_at_start)})


def start(program: str | pathlib.Path, argument: str, environment: Mapping[str, str]) -> Fork:
    """Python runs the program with one argument; `environment` is all of its environment."""
    read = tuple((name, environment[name]) for name in READ_AT_START if name in environment)
    server = _server(read)
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    request = {"run": str(program), "argument": argument, "environment": dict(environment)}
    try:
        pid = server.ask(request, stdin, stdout, 2)
    except RuntimeError:
        _server.cache_clear()
        raise
    finally:
        os.close(stdin)
        os.close(stdout)
    return Fork(server, pid, to_stdin, from_stdout)


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """The child takes on all that a process of the program has before its first line."""
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
    """The server's loop, until its owner hangs up. In a child it returns what the child is to run."""
    while True:
        data, fds, _, _ = socket.recv_fds(requests, MOST_BYTES, 4)
        if not data:
            return None
        request = json.loads(data)
        answer, *pipes = fds
        if "wait" in request:  # that child has ended
            status = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
            os.write(answer, str(status).encode())
        elif os.fork() == 0:
            requests.close()
            os.setsid()  # before anybody knows whom to kill
            os.write(answer, str(os.getpid()).encode())
            os.close(answer)
            _become(request, pipes)
            return request
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    import numpy as np  # noqa: F401
    import spdld  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner answers that
    with socket.socket(fileno=int(sys.argv[1])) as given:
        to_run = _serve(given)
    if to_run is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        runpy.run_path(to_run["run"], run_name="__main__")

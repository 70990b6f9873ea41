# SPDX-License-Identifier: Apache-2.0
"""Runs a user's own Python function for the daemon: ``python -m spdld.runner --address DIR --pool KEY``.

This process, the supervisor, runs no code of the user's. It keeps as many children as the daemon
says, in which the function runs, and alone ends them: on the daemon's word, when they grow too
large, and when it ends itself. Needs numpy, and no compiled part of this package.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from ._runner_frames import (
    IMPORT_FAILED,
    IN_RUNNER,
    MAGIC,
    REASONS,
    VERSION,
    TurnedAway,
    code_digest,
    connect,
    receive,
    send,
)

_ONE_THREAD = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB")
_PATIENCE_S = 60  # with a daemon that is gone
_TAIL_BYTES = 2048
_IMPORT_TAIL_BYTES = 16384
_LONG_LIFE_S = 1.0
_SEED = 0xFFFFFFFF  # the number of no child
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NOT_FOUND, _ALREADY_EXISTS, _UNAVAILABLE = 5, 6, 14  # gRPC's

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class _Process:
    """A child, or the seed, from which children are forked: what is known of it and its output."""

    def __init__(self) -> None:
        self.pid = 0  # 0: it is not there, or not known yet
        self.reader = -1  # the end of its output's pipe
        self.tail = b""
        self.reason = "Itself"
        self.started = 0.0
        self.quick_ends = 0  # in a row
        self.due: float | None = 0.0  # when it is to be started; None: it has been


class Supervisor:
    def __init__(self, address: str, key: str, prints_for: int | None) -> None:
        self._address = address
        self._key = key
        self._pid = os.getpid()
        self._link: socket.socket | None = None
        self._token = b""
        self._pool: dict[str, Any] = {}
        self._seed = _Process()
        self._orders: socket.socket | None = None  # to the seed
        # That the seed imported: its files and their digest.
        self._code: tuple[list[str], bytes] | None = None
        self._children: list[_Process] = []
        self._selector = selectors.DefaultSelector()
        self._next_look = 0.0
        self._prints_for = prints_for  # the process whose stderr this has; none: its own

    def run(self) -> int:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
        wake, self._woken = socket.socketpair()
        for end in (wake, self._woken):
            end.setblocking(False)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._selector.register(wake, selectors.EVENT_READ, lambda: wake.recv(4096))
        self._watch_printing()
        try:
            self._attach(time.monotonic())
            while True:
                self._start_due()
                for event, _ in self._selector.select(self._wait_s()):
                    event.data()
                self._reap()
                self._end_grown()
                if self._link is None:
                    self._attach(time.monotonic() + _PATIENCE_S)
        except _Ended as end:
            if end.text:
                print(f"spdld.runner: {end.text}", file=sys.stderr)
            return end.status
        finally:
            for process in [self._seed, *self._children]:
                _kill(process)

    def _watch_printing(self) -> None:
        """Whoever reads that process's stderr is not to wait for this one's end."""
        if self._prints_for is None:
            return
        try:
            pidfd = os.pidfd_open(self._prints_for)
        except (OSError, AttributeError):  # an old kernel, or a Python built for one
            _drop_stderr()
            return

        def ended() -> None:
            self._selector.unregister(pidfd)
            os.close(pidfd)
            _drop_stderr()

        self._selector.register(pidfd, selectors.EVENT_READ, ended)

    # The daemon.

    def _attach(self, until: float) -> None:
        pause = 0.05
        while True:
            try:
                if self._token and not self._has_current_code():  # for the next daemon
                    raise _Ended(0, "")
                link = connect(self._address)
                python = f"{sys.executable} ({platform.python_version()})"
                send(
                    link,
                    "SupervisorHello",
                    MAGIC,
                    VERSION,
                    self._key.encode(),
                    python.encode()[-55:],
                    self._pid,
                    0,
                )
                _, values, fds = receive(link)
                break
            except PermissionError as error:
                raise _Ended(1, str(error)) from None
            except (OSError, EOFError, TurnedAway) as error:
                code = getattr(error, "code", _UNAVAILABLE)
                if code == _ALREADY_EXISTS:
                    raise _Ended(0, "") from None
                if time.monotonic() >= until or code not in (_NOT_FOUND, _UNAVAILABLE):
                    raise _Ended(1, f"the daemon at {self._address}: {error}") from None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
            self._reap()
        self._link = link
        self._selector.register(link, selectors.EVENT_READ, self._hear)
        self._token, size = values
        self._pool = json.loads(os.pread(fds[0], size, 0))
        os.close(fds[0])
        count = self._pool["children"] or len(os.sched_getaffinity(0))
        self._children = [_Process() for _ in range(count)]
        if self._pool["spawn"]:
            self._seed.due = None

    def _hear(self) -> None:
        try:
            name, values, _ = receive(self._link)
        except (EOFError, OSError, TurnedAway):
            self._selector.unregister(self._link)
            self._link.close()
            self._link = None
            for child in self._children:  # theirs to the daemon are gone, too
                _kill(child)
                self._forget_output(child)
            self._children = []
            return
        if name == "End" or (name == "Look" and not self._has_current_code()):
            raise _Ended(0, "")
        if name == "Look":
            self._tell("Looked")
        if name == "Kill":
            number, pid = values
            if number < len(self._children) and self._children[number].pid == pid:
                self._end(self._children[number], "Killed")

    def _has_current_code(self) -> bool:
        """Whether the file is as it was imported. Where each child imports, that is not known."""
        return self._code is not None and code_digest(self._code[0]) == self._code[1]

    def _tell(self, name: str, *values: object, text: bytes = b"") -> None:
        with contextlib.suppress(OSError):  # its end is heard of by itself
            if self._link is not None:
                send(self._link, name, *values, text=text)

    # Processes.

    def _start_due(self) -> None:
        now = time.monotonic()
        if self._link is None:
            return
        if self._seed.due is not None and self._seed.due <= now and self._orders is None:
            self._start_seed()
        for number, child in enumerate(self._children):
            if child.due is not None and child.due <= now:
                self._start_child(number, child)

    def _start_seed(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def run() -> None:
            from ._runner_child import be_seed

            be_seed(self._pool, theirs, self._begin)

        self._orders = ours
        ours.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, self._hear_seed)
        self._fork(self._seed, theirs, run)
        theirs.close()
        for child in self._children:  # whose order went to the last seed
            if child.pid == 0 and child.due is None:
                child.due = 0.0

    def _start_child(self, number: int, child: _Process) -> None:
        if self._pool["spawn"]:

            def run() -> None:
                from ._runner_child import load_or_exit, serve

                rows = load_or_exit(self._pool)
                serve(rows, self._address, self._key, self._token, number)

            self._fork(child, None, run)
            return
        if self._orders is None:
            child.due = max(time.monotonic(), self._seed.due or 0.0) + 0.01
            return
        writer = self._open_output(child)
        order = {
            "number": number,
            "address": self._address,
            "key": self._key,
            "token": self._token.hex(),
        }
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [writer])
            self._started(child)
        except OSError:  # the seed reads the others first, or has ended
            child.due = time.monotonic() + 0.1
        os.close(writer)

    def _fork(self, process: _Process, keep: socket.socket | None, run: Callable[[], None]) -> None:
        writer = self._open_output(process)
        pid = os.fork()
        if pid != 0:
            os.close(writer)
            self._started(process)
            process.pid = pid
            return
        try:
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            kept = {0, 1, 2, keep.fileno() if keep is not None else 0}
            signal.set_wakeup_fd(-1)
            for fd in map(int, os.listdir("/proc/self/fd")):
                if fd not in kept:
                    with contextlib.suppress(OSError):
                        os.close(fd)
            self._begin(None)
            run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _begin(self, middle: int | None) -> None:
        """What each new process does first. Its parent was ``middle``, until that has ended."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # what it starts is of its group, and ends with it
        while os.getppid() == middle:
            time.sleep(0.0002)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

    def _started(self, process: _Process) -> None:
        process.due = None
        process.started = time.monotonic()
        process.reason = "Itself"

    def _hear_seed(self) -> None:
        try:
            while data := self._orders.recv(1 << 20):
                told = json.loads(data)
                if "files" in told:
                    self._code = (told["files"], bytes.fromhex(told["code"]))
                    continue
                number, pid = told["number"], told["pid"]
                child = self._children[number] if number < len(self._children) else _Process()
                if child.due is None and child.pid == 0:
                    child.pid = pid
                    if pid == 0:
                        self._plan(child)
                elif pid != 0:
                    os.kill(pid, signal.SIGKILL)  # ordered for a daemon that is gone
        except BlockingIOError:
            return
        except OSError:
            pass
        self._selector.unregister(self._orders)
        self._orders.close()
        self._orders = None

    def _plan(self, process: _Process) -> None:
        """Has it started again: at once, unless it ends again and again."""
        now = time.monotonic()
        quick = now - process.started < _LONG_LIFE_S and process.reason == "Itself"
        process.quick_ends = process.quick_ends + 1 if quick else 0
        again = process.quick_ends - 3
        process.due = now + (min(5.0, 0.1 * 2**again) if again >= 0 else 0.0)
        process.pid = 0

    def _reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            if self._orders is not None:
                self._hear_seed()  # whose it is was told before it came here
            pid = found.si_pid
            process = next((p for p in [self._seed, *self._children] if p.pid == pid), None)
            if process is not None:
                _kill(process)  # what it has started, while nobody else can have its number
            status = os.waitpid(pid, 0)[1]
            if process is not None:
                self._ended(process, pid, status)

    def _ended(self, process: _Process, pid: int, status: int) -> None:
        from_import = os.WIFEXITED(status) and os.WEXITSTATUS(status) == IMPORT_FAILED
        self._read_output(process)
        self._forget_output(process)
        if from_import:
            text = process.tail[-_IMPORT_TAIL_BYTES:]
            self._tell("ImportFailed", len(text), 0, text=text)
            raise _Ended(1, "")
        if process is not self._seed or status != 0:
            text = process.tail[-_TAIL_BYTES:]
            number = _SEED if process is self._seed else self._children.index(process)
            self._tell(
                "ChildEnded", number, pid, status, REASONS[process.reason], len(text), 0, text=text
            )
        self._plan(process)

    def _end(self, process: _Process, reason: str) -> None:
        process.reason = reason
        _kill(process)

    def _end_grown(self) -> None:
        most = self._pool.get("max_rss", 0) if self._pool else 0
        now = time.monotonic()
        if most == 0 or now < self._next_look:
            return
        self._next_look = now + 0.5
        for child in self._children:
            with contextlib.suppress(OSError, IndexError):
                if child.pid != 0:
                    with open(f"/proc/{child.pid}/statm") as file:
                        pages = int(file.read().split()[1])
                    if pages * os.sysconf("SC_PAGE_SIZE") > most:
                        self._end(child, "Grew")

    def _wait_s(self) -> float | None:
        now = time.monotonic()
        due = [p.due for p in [self._seed, *self._children] if p.due is not None]
        if self._pool.get("max_rss", 0) > 0:
            due.append(self._next_look)
        return max(0.0, min(due) - now) + 0.001 if due else None

    # What they write.

    def _open_output(self, process: _Process) -> int:
        self._forget_output(process)
        process.tail = b""
        process.reader, writer = os.pipe()
        os.set_blocking(process.reader, False)
        self._selector.register(
            process.reader, selectors.EVENT_READ, lambda: self._read_output(process)
        )
        return writer

    def _read_output(self, process: _Process) -> None:
        with contextlib.suppress(BlockingIOError):
            while process.reader >= 0:
                data = os.read(process.reader, 65536)
                if not data:
                    self._forget_output(process)
                    return
                process.tail = (process.tail + data)[-_IMPORT_TAIL_BYTES:]
                _pass_on(data)

    def _forget_output(self, process: _Process) -> None:
        if process.reader >= 0:
            self._selector.unregister(process.reader)
            os.close(process.reader)
            process.reader = -1


def _pass_on(data: bytes) -> None:
    """To stderr, as far as somebody reads that: nothing else waits for it."""
    with contextlib.suppress(OSError):
        while data and select.select([], [2], [], 0)[1]:
            data = data[os.write(2, data[: select.PIPE_BUF]) :]


def _drop_stderr() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


class _Ended(Exception):  # noqa: N818 - no error
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def _kill(process: _Process) -> None:
    for kill in (os.killpg, os.kill):  # before setsid() it has no group
        with contextlib.suppress(ProcessLookupError):
            if process.pid != 0:
                kill(process.pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m spdld.runner", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--address", required=True, metavar="DIR", help="the daemon's runtime_dir")
    parser.add_argument("--pool", required=True, metavar="KEY", help="as the daemon told it")
    parser.add_argument(
        "--modules", metavar="DIR", help="where modules are looked for at last, as in sys.path"
    )
    parser.add_argument(
        "--detach",
        type=int,
        metavar="PID",
        help="go on in the background; what functions print is dropped once this process has ended",
    )
    options = parser.parse_args()
    if options.modules is not None:
        sys.path.append(options.modules)
    if options.detach is not None:
        if os.fork() != 0:
            os._exit(0)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        os.close(null)
    # Before anything is imported that looks at it: a process for each core is enough.
    for library in _ONE_THREAD:
        os.environ[f"{library}_NUM_THREADS"] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ[IN_RUNNER] = "1"
    return Supervisor(options.address, options.pool, options.detach).run()


if __name__ == "__main__":
    sys.exit(main())

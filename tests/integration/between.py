# SPDX-License-Identifier: Apache-2.0
"""A control socket in front of a daemon's, on which a test does something between two messages."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from typing import Any


class Between:
    """Passes on what spdlctl and a daemon say to each other, on a directory of its own.

    A pipeline's file is sent twice, with MARKER in it once: to ask, and to change. The first is
    passed on. Before the second, `before` is called; after it, `after`, and when that returns the
    connection ends without its answer.
    """

    MARKER = b"# sent through Between"

    def __init__(
        self,
        daemon: Any,
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self._daemon = daemon
        self._before = before
        self._after = after
        self._seen = b""
        self._muted = False
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="spdld-", dir="/tmp"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._directory / "control.sock"))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return str(self._directory)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(str(pathlib.Path(self._daemon.address) / "control.sock"))
            except OSError:
                near.close()
                continue
            for pump in (self._requests, self._answers):
                self._threads.append(threading.Thread(target=pump, args=(near, far)))
                self._threads[-1].start()

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                had = self._seen.count(self.MARKER)
                self._seen += data
                second = had < 2 <= self._seen.count(self.MARKER)
                self._muted = self._muted or (second and self._after is not None)
                if second and self._before is not None:
                    self._before()
                far.sendall(data)
                if second and self._after is not None:
                    self._after()
                    break
        self._end(near, far)

    def _answers(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if not self._muted:
                    near.sendall(data)
        if not self._muted:
            self._end(near, far)

    @staticmethod
    def _end(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._end(self._listener)
        self._listener.close()
        for thread in self._threads:
            thread.join()
        shutil.rmtree(self._directory)

    def __enter__(self) -> Between:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self.close()
        if failed is None:
            assert self._seen.count(self.MARKER) == 2

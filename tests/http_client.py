# SPDX-License-Identifier: Apache-2.0
"""Asks a daemon's http.listen."""

from __future__ import annotations

import http.client
import pathlib
import socket

WATCHDOG_S = 60.0


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__("spdld", timeout=WATCHDOG_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(listener: int | pathlib.Path, path: str) -> tuple[int, str]:
    """The status and the text of a page, at a port of this machine or at a Unix socket."""
    if isinstance(listener, int):
        connection = http.client.HTTPConnection("127.0.0.1", listener, timeout=WATCHDOG_S)
    else:
        connection = _UnixConnection(listener)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

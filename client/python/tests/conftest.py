# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import faulthandler
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import spdld
from fake_daemon import FakeDaemon, Options
from support import launchers

_WATCHDOG_S = 60


@pytest.fixture(autouse=True)
def _watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(_WATCHDOG_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """SIGINT as in a terminal: a shell that starts the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in launchers.variables():
        monkeypatch.delenv(name)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., FakeDaemon]]:
    """start(**options) runs a fake daemon at tmp_path."""
    running: list[FakeDaemon] = []

    def run(**options: object) -> FakeDaemon:
        running.append(FakeDaemon(tmp_path, Options(**options)))
        return running[-1]

    yield run
    for daemon in running:
        daemon.close()


@pytest.fixture
def loader(tmp_path: Path) -> Callable[..., spdld.Loader]:
    """loader(**options) is a Loader of 'numbers' at tmp_path."""

    def make(pipeline: object = "numbers", **options: object) -> spdld.Loader:
        return spdld.Loader(pipeline, **{"address": tmp_path, "timeout": 20.0, **options})

    return make

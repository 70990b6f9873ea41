# SPDX-License-Identifier: Apache-2.0
"""The daemon on sockets that a service manager opened, as systemd does."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import pytest

# Moves the two inherited sockets to where LISTEN_FDS has them, and becomes the daemon.
BECOME = 'export LISTEN_PID=$$; data=$1 control=$2; shift 2; exec "$@" 3<&"$data" 4<&"$control"'


@pytest.fixture
def daemon() -> Any:
    with daemon_module.Daemon() as prepared:
        yield prepared


def listen(path: pathlib.Path, kind: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(path))
    listener.listen(16)
    return listener


def activate(
    daemon: daemon_module.Daemon, sockets: tuple[socket.socket, socket.socket], names: str
) -> subprocess.Popen[bytes]:
    fds = [listener.fileno() for listener in sockets]
    with daemon.log_file.open("ab") as log:
        return subprocess.Popen(
            ["/bin/bash", "-c", BECOME, "bash", *map(str, fds)]
            + [str(daemon_module.build_dir() / "bin/spdld"), "--config", str(daemon.config_file)],
            env={**os.environ, "LISTEN_FDS": "2", "LISTEN_FDNAMES": names},
            pass_fds=fds,
            stdout=log,
            stderr=log,
        )


def test_consumers_that_come_before_the_daemon_are_served_once_it_starts(
    daemon: daemon_module.Daemon,
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
) -> None:
    daemon.configure(pipelines=[write_pipeline(make_dataset())], settings={})
    data = listen(daemon.runtime_dir / "data.sock", socket.SOCK_SEQPACKET)
    control = listen(daemon.runtime_dir / "control.sock", socket.SOCK_STREAM)
    consumer = subprocess.Popen(
        [daemon_module.build_dir() / "bin/spdlctl", "--address", daemon.address]
        + ["consume", "images", "--batches", "2"],
        stdout=subprocess.PIPE,
        text=True,
    )
    process = activate(daemon, (data, control), "data:control")
    try:
        output, _ = consumer.communicate(timeout=daemon_module.WATCHDOG_S)
        assert consumer.returncode == 0, daemon.log()
        assert output.startswith("2 batches")
        process.send_signal(signal.SIGTERM)
        assert process.wait(daemon_module.WATCHDOG_S) == 0
        # The files are the service manager's: the next daemon is started by the next consumer.
        assert (daemon.runtime_dir / "data.sock").exists()
        assert (daemon.runtime_dir / "control.sock").exists()
    finally:
        process.kill()
        process.wait()


def test_a_unit_that_names_its_sockets_wrongly_is_told_how(daemon: daemon_module.Daemon) -> None:
    data = listen(daemon.runtime_dir / "data.sock", socket.SOCK_SEQPACKET)
    control = listen(daemon.runtime_dir / "control.sock", socket.SOCK_STREAM)
    process = activate(daemon, (data, control), "first:second")
    assert process.wait(daemon_module.WATCHDOG_S) == 2
    assert "FileDescriptorName=" in daemon.log()

# SPDX-License-Identifier: Apache-2.0
"""The daemon on sockets that a service manager opened, as systemd does."""

from __future__ import annotations

import fcntl
import os
import pathlib
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import pytest
from integration.ranks import Rank, indices

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


class Manager:
    """Holds the sockets and starts the daemon for whoever connects, each time that there is none."""

    def __init__(self, daemon: daemon_module.Daemon) -> None:
        self._daemon = daemon
        self._sockets = (
            listen(daemon.runtime_dir / "data.sock", socket.SOCK_SEQPACKET),
            listen(daemon.runtime_dir / "control.sock", socket.SOCK_STREAM),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closing, self._close = os.pipe()
        self.starts = 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while True:
            ready, _, _ = select.select([*self._sockets, self._closing], [], [])
            if self._closing in ready:
                return
            with self._lock:
                self._process = activate(self._daemon, self._sockets, "data:control")
                self.starts += 1
            death = os.pidfd_open(self._process.pid)
            select.select([death, self._closing], [], [])
            os.close(death)

    def kill_daemon(self) -> None:
        with self._lock:
            assert self._process is not None
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._close)
        self._thread.join()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for listener in self._sockets:
            listener.close()
        os.close(self._closing)


def consume(daemon: daemon_module.Daemon, job: str, epochs: int) -> subprocess.Popen[str]:
    """A rank in C++, which stands still while nobody reads what it prints."""
    process = subprocess.Popen(
        [daemon_module.build_dir() / "bin/spdlctl", "--address", daemon.address, "consume"]
        + ["images", "--job", job, "--rank", "0", "--world-size", "1"]
        + ["--epochs", str(epochs), "--digest"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    return process


def test_ranks_go_on_with_a_daemon_that_is_killed_and_started_by_their_own_connection(
    daemon: daemon_module.Daemon,
    make_dataset: Callable[..., Any],
    write_large_pipeline: Callable[..., pathlib.Path],
    start_rank: Callable[..., Rank],
) -> None:
    items, epochs, kills = 96, 40, 3
    pipeline = write_large_pipeline(make_dataset(count=items), batch={"size": 2, "last": "keep"})
    daemon.configure(pipelines=[pipeline], settings={})
    with Manager(daemon) as manager:
        ranks = [start_rank(daemon, job="run", rank=rank, world_size=2) for rank in range(2)]
        native = consume(daemon, "native", epochs)
        assert native.stdout is not None
        try:
            rows, lines = [], []
            for _ in range(kills):
                for rank in ranks:
                    rows += indices(rank.take(2))
                lines += [native.stdout.readline() for _ in range(epochs * 48 // 10)]
                manager.kill_daemon()
                # More than they can have in hand.
                for rank in ranks:
                    rows += indices(rank.take(5))
            for rank in ranks:
                rows += indices(rank.rest_of_epoch())
                assert rank.do("stats")["reconnects"] == kills
            rest = native.stdout.read()  # communicate() would pass over what is buffered
            _, said = native.communicate(timeout=daemon_module.WATCHDOG_S)
        finally:
            native.kill()
            native.communicate()
        assert manager.starts == kills + 1
        assert sorted(rows) == list(range(items))
        assert native.returncode == 0, said
        assert daemon.log().count("reads shard 0 of 1 of job 'native'") == kills + 1
        whole, _ = consume(daemon, "again", epochs).communicate(timeout=daemon_module.WATCHDOG_S)
        assert "".join(lines) + rest == whole


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

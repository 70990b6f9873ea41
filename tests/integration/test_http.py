# SPDX-License-Identifier: Apache-2.0
"""`http.listen`: /metrics, /healthz and /readyz, for whom, and what is refused."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import pytest
from http_client import ask, free_port
from integration.hung_mount import OPENDIR, HungMount
from integration.ranks import Rank
from integration.threads import threads_of
from metrics import jobs_in, read
from users import ANN, BOB, Place

ON_UNIX = {"http": {"listen": "unix:run/http.sock"}}  # beside the configuration
# Asks as another user, who need not see the checkout.
ASK = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
sys.stdout.write(connection.makefile().read().split("\\n\\n", 1)[1])
"""


def unix_socket(daemon: Any) -> pathlib.Path:
    return daemon.runtime_dir / "http.sock"


@pytest.fixture
def pipeline(write_pipeline: Callable[..., pathlib.Path], dataset: Any) -> pathlib.Path:
    return write_pipeline(dataset)


def test_nobody_listens_unless_told_to(daemon: Any) -> None:
    assert "spdld-http" not in threads_of(daemon.pid)
    assert not unix_socket(daemon).exists()


def test_a_unix_socket_shows_what_spdlctl_shows(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path, start_rank: Callable[..., Rank]
) -> None:
    daemon = make_daemon(pipelines=[pipeline], settings=ON_UNIX)
    assert "spdld-http" in threads_of(daemon.pid)
    rank = start_rank(daemon, job="run")
    rank.take(1)
    status, text = ask(unix_socket(daemon), "/metrics")
    told, shown = read(text), read(daemon.ctl("metrics").stdout)
    assert status == 200
    assert jobs_in(told) == jobs_in(shown) == {(str(os.geteuid()), "run", "images")}
    assert {name: set(samples) for name, samples in told.items()} == {
        name: set(samples) for name, samples in shown.items()
    }
    assert ask(unix_socket(daemon), "/nothing")[0] == 404


def test_the_socket_is_there_again_after_a_crash_and_gone_after_a_stop(
    make_daemon: Callable[..., Any],
) -> None:
    daemon = make_daemon(settings=ON_UNIX)
    daemon.kill()
    assert unix_socket(daemon).exists()
    daemon.start()
    assert ask(unix_socket(daemon), "/healthz") == (200, "ok\n")
    daemon.stop()
    assert not unix_socket(daemon).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_users_of_a_unix_socket_see_their_own_jobs() -> None:
    with contextlib.closing(Place(settings=ON_UNIX)) as place:
        path = place.pipeline("shared", place.dataset("data", owner=0))
        assert place.apply(0, path) == ""
        for user in (ANN, BOB):
            assert place.ctl(user, "job", "create", "run", "--pipeline", "shared").returncode == 0
        for user in (ANN, BOB):
            done = subprocess.run(
                ["/usr/bin/python3", "-c", ASK, unix_socket(place.daemon)],
                user=user,
                group=user,
                extra_groups=[],
                capture_output=True,
                text=True,
                check=True,
                cwd="/",
            )
            told = read(done.stdout)
            assert jobs_in(told) == {(str(user), "run", "shared")}
            assert told["spdld_jobs"] == {frozenset(): 2}


def test_tcp_shows_totals_and_jobs_where_the_admin_says_so(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path, start_rank: Callable[..., Rank]
) -> None:
    for jobs in (False, True):
        port = free_port()
        settings = {"http": {"listen": f"127.0.0.1:{port}", "jobs": jobs}}
        daemon = make_daemon(pipelines=[pipeline], settings=settings)
        start_rank(daemon, job="run").take(1)
        told = read(ask(port, "/metrics")[1])
        assert told["spdld_sessions"] == {frozenset(): 1}
        assert bool(jobs_in(told)) == jobs
        assert ("spdld_stage_tasks_total" in told) == jobs


def test_readiness_follows_the_start_and_drains(
    make_daemon: Callable[..., Any],
    mount: Callable[..., HungMount],
    write_pipeline: Callable[..., pathlib.Path],
    dataset: Any,
    wait_until: Callable[..., Any],
    tmp_path: pathlib.Path,
) -> None:
    daemon = make_daemon(settings=ON_UNIX)
    ready, healthy = "/readyz", "/healthz"
    at = unix_socket(daemon)
    assert ask(at, ready) == (200, "ready\n")
    daemon.ctl("drain")
    status, text = ask(at, ready)
    assert status == 503 and "the daemon is drained" in text
    assert ask(at, healthy)[0] == 200
    daemon.ctl("undrain")
    assert ask(at, ready)[0] == 200
    daemon.stop()

    hung = mount("hung", dataset.root)
    hung.hang(call=OPENDIR)
    path = write_pipeline(dataset, "hung", source={"files": {"root": str(tmp_path / "hung")}})
    daemon.configure(pipelines=[path], settings=ON_UNIX)
    starting = threading.Thread(target=daemon.start)
    starting.start()
    wait_until(at.exists, "the socket")
    status, text = ask(at, ready)
    assert status == 503 and "the daemon starts" in text
    assert ask(at, healthy)[0] == 200
    hung.let_go()
    starting.join()
    assert ask(at, ready)[0] == 200


def test_a_listener_that_cannot_be_is_refused_with_the_way_out(
    make_daemon: Callable[..., Any],
) -> None:
    first = make_daemon(settings=ON_UNIX)
    with pytest.raises(RuntimeError, match=r"http\.listen: another process listens at .*; end it"):
        make_daemon(settings={"http": {"listen": f"unix:{unix_socket(first)}"}})
    assert ask(unix_socket(first), "/healthz")[0] == 200
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RuntimeError, match="use another port"):
            make_daemon(settings={"http": {"listen": listen}})
    done = subprocess.run(
        [
            daemon_module.build_dir() / "bin/spdld",
            *("--check", "--set", "http.listen=192.0.2.1:9464"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "this machine has no such address; 'ip address' lists" in done.stderr


def test_connections_that_hang_keep_neither_scrapers_nor_ranks_waiting(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path, start_rank: Callable[..., Rank]
) -> None:
    port = free_port()
    settings = {"http": {"listen": f"127.0.0.1:{port}"}}
    daemon = make_daemon(pipelines=[pipeline], settings=settings)
    rank = start_rank(daemon, job="run")
    with contextlib.ExitStack() as bad:
        for number in range(200):
            connection = bad.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall((b"", b"GET /metrics HTTP/1.1\r\nX: ", b"\xff\x00")[number % 3])
        assert ask(port, "/metrics")[0] == 200
        rank.take(2)
        assert daemon.ctl("metrics").returncode == 0
    assert threads_of(daemon.pid).count("spdld-http") == 1

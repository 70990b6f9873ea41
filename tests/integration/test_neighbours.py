# SPDX-License-Identifier: Apache-2.0
"""What one consumer, or one who reads the log, can do to the others: nothing."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

ITEMS, BATCH = 48, 4
# More than the daemon's queue and a pipe hold of lines that it writes about each of them.
# So many processes, each with a batch size of its own.
BATCH_SIZES = int(os.environ.get("SPDLD_BATCH_SIZES", "100"))
STRANGERS = 3000


@pytest.fixture
def pipeline(
    make_dataset: Callable[..., Any], write_large_pipeline: Callable[..., Any]
) -> pathlib.Path:
    return write_large_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH, "last": "keep"})


@pytest.fixture
def unread() -> Iterator[tuple[int, int]]:
    """A pipe that is as full as a pipe can be."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"-" * 4096)
    os.set_blocking(writer, True)
    yield reader, writer
    for end in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(end)


def send_garbage(daemon: Any, times: int) -> None:
    for _ in range(times):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect(str(daemon.runtime_dir / "data.sock"))
            stranger.send(b"garbage" * 10)
            with contextlib.suppress(OSError):
                while stranger.recv(65536):
                    pass


def consume(daemon: Any, *more: str) -> Any:
    return daemon.ctl("consume", "images", *more)


def test_a_log_that_nobody_reads_stops_nobody(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path, unread: tuple[int, int]
) -> None:
    daemon = make_daemon(pipelines=[pipeline], log_to=unread[1])
    send_garbage(daemon, 50)
    assert f"{ITEMS} rows" in consume(daemon).stdout
    # Nor does it keep the daemon from leaving.
    assert daemon.stop() == 0


def test_what_a_stranger_causes_in_the_log_is_bounded_and_counted(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path
) -> None:
    daemon = make_daemon(pipelines=[pipeline])
    send_garbage(daemon, STRANGERS)
    assert daemon.stop() == 0
    lines = daemon.log().splitlines()
    told = [line for line in lines if "ended consumer" in line]
    assert 50 < len(told) < STRANGERS / 2
    left_out = [
        int(line.split("log: ")[1].split()[0])
        for line in lines
        if f"lines that user {os.getuid()} has caused were left out" in line
    ]
    assert sum(left_out) + len(told) == STRANGERS


def test_a_name_forges_no_line_of_the_log(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path
) -> None:
    daemon = make_daemon(pipelines=[pipeline], settings={"log": {"format": "json"}})
    forged = 'run\n{"level":"error","message":"forged"}\x1b[2J'
    consume(daemon, "--job", forged)
    daemon.ctl("consume", "no-such", "--job", forged, check=False)
    assert daemon.stop() == 0
    lines = [json.loads(line) for line in daemon.log().splitlines()]
    assert not [line for line in lines if line["message"] == "forged"]
    refused = [line for line in lines if "refused" in line["message"]]
    assert refused and refused[0]["job"] == r'run\n{"level":"error","message":"forged"}\x1b[2J'
    assert refused[0]["pipeline"] == "no-such"
    assert {"session", "pid", "uid"} <= refused[0].keys()
    assert not [line for line in daemon.log() if line == "\x1b"]


def test_consumers_of_ever_other_sizes_leave_no_descriptor_behind(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path, wait_until: Callable[..., Any]
) -> None:
    daemon = make_daemon(pipelines=[pipeline], settings={"arena": {"idle": "1s"}})
    files = max(96, BATCH_SIZES * 512 // 800)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (files, files))
    consume(daemon)

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{daemon.pid}/fd"))

    def idle() -> int:
        return int(daemon.ctl_json("status").get("arena_idle", 0))

    wait_until(lambda: idle() == 0, "no idle arena")
    before = descriptors()
    for size in range(1, BATCH_SIZES + 1):
        consume(daemon, "--batch-size", str(size), "--batches", "1")
    wait_until(lambda: idle() == 0, "no idle arena")
    wait_until(lambda: descriptors() <= before, "as many descriptors as before")


def test_status_tells_idle_arenas_from_used_ones(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path, wait_until: Callable[..., Any]
) -> None:
    daemon = make_daemon(pipelines=[pipeline], settings={"arena": {"idle": "1h"}})
    consume(daemon)
    wait_until(lambda: "of it idle" in daemon.ctl("status").stdout, "an idle arena")
    status = daemon.ctl_json("status")
    assert status["arena_idle"] == status["arena_used"]


def test_one_users_share_of_the_budget_is_refused_with_its_numbers(
    make_daemon: Callable[..., Any],
    write_large_pipeline: Callable[..., Any],
    make_dataset: Callable[..., Any],
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    data = make_dataset(count=ITEMS)
    pipeline = write_large_pipeline(data, batch={"size": BATCH})
    stranger = 54321
    daemon = make_daemon(
        pipelines=[pipeline],
        settings={
            "arena": {"budget": "16MiB"},
            "limits": {"arena": "1%"},
            # pytest's directories are closed to others; the stranger keeps this process's group.
            "access": {"roots": [{"path": str(data.root), "groups": [os.getegid()]}]},
        },
    )
    for directory in (daemon.directory, daemon.runtime_dir):
        directory.chmod(0o755)
    assert f"{ITEMS} rows" in consume(daemon).stdout  # the daemon's own user is not bound
    pid = os.fork()
    if pid == 0:
        os.setuid(stranger)
        done = daemon.ctl("consume", "images", check=False)
        told = "limits.arena" in done.stderr and f"user {stranger} has 0 B in use" in done.stderr
        os._exit(0 if done.returncode != 0 and told else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_crash_leaves_what_was_logged(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path
) -> None:
    daemon = make_daemon(pipelines=[pipeline])
    consume(daemon, "--job", "before-the-crash")
    os.kill(daemon.pid, signal.SIGABRT)
    daemon.wait()
    assert "before-the-crash" in daemon.log()

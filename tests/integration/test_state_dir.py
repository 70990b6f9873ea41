# SPDX-License-Identifier: Apache-2.0
"""A daemon starts on whatever its state_dir is, says what is wrong with it, and has it alone."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
from integration.ranks import Rank

ROOT = os.geteuid() == 0
# Root may write everything: as root, the daemons of some tests run as nobody.
DAEMON_UID = 65534 if ROOT else os.geteuid()


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system with room for the daemon's record and little more."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system")
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", str(directory)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: pathlib.Path) -> pathlib.Path:
    rubbish = directory / "rubbish"
    with rubbish.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError:
            return rubbish


def test_a_full_state_dir_is_told_and_nothing_is_lost_once_there_is_room(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    dataset: Any,
    small_disk: pathlib.Path,
) -> None:
    daemon = make_daemon(
        pipelines=[write_pipeline(dataset)], settings={"state_dir": str(small_disk)}
    )
    rubbish = fill(small_disk)
    create = ["job", "create", "run", "--pipeline", "images"]
    refused = daemon.ctl(*create, check=False)
    assert refused.returncode == 1
    assert f"{small_disk}/spdld.sqlite could not be " in refused.stderr
    assert "state_dir" in refused.stderr
    assert daemon.ctl_json("get", "jobs") == [], "what is not kept is not there"
    assert daemon.ctl("consume", "images", "--batches", "2").returncode == 0
    rubbish.unlink()
    daemon.ctl(*create)
    daemon.restart()
    assert [job["job"] for job in daemon.ctl_json("get", "jobs")] == ["run"]


def warnings_of(daemon: Any) -> str:
    return "\n".join(daemon.ctl_json("status").get("warnings", []))


def test_a_daemon_starts_on_a_full_state_dir_with_what_it_has(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    dataset: Any,
    small_disk: pathlib.Path,
) -> None:
    pipeline = write_pipeline(dataset)
    daemon = make_daemon(settings={"state_dir": str(small_disk)})
    daemon.ctl("apply", "-f", pipeline)
    daemon.ctl("job", "create", "run", "--pipeline", "images")
    daemon.stop()
    rubbish = fill(small_disk)
    daemon.start()
    assert f"the file system of state_dir {small_disk} was full" in warnings_of(daemon)
    assert [job["job"] for job in daemon.ctl_json("get", "jobs")] == ["run"]
    assert daemon.ctl("consume", "images", "--batches", "2").returncode == 0
    write_pipeline(dataset, seed=8)
    refused = daemon.ctl("apply", "-f", pipeline, check=False)
    assert refused.returncode == 1
    assert "stay as they are" in refused.stderr and "free space" in refused.stderr
    [applied] = daemon.ctl_json("get", "pipelines")
    assert applied["version"] == 1, "what was refused is not applied"
    assert daemon.ctl("delete", "job", "run", check=False).returncode == 1
    assert [job["job"] for job in daemon.ctl_json("get", "jobs")] == ["run"]
    rubbish.unlink()
    daemon.ctl("apply", "-f", pipeline)
    daemon.restart()
    [applied] = daemon.ctl_json("get", "pipelines")
    assert applied["version"] == 2
    assert "was full" not in warnings_of(daemon)


def test_a_daemon_starts_on_a_full_state_dir_that_holds_nothing_yet(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    dataset: Any,
    small_disk: pathlib.Path,
) -> None:
    fill(small_disk)
    daemon = make_daemon(
        pipelines=[write_pipeline(dataset)], settings={"state_dir": str(small_disk)}
    )
    assert f"{small_disk}/spdld.sqlite could not be " in warnings_of(daemon)
    daemon.await_log("is forgotten when the daemon ends")
    assert daemon.ctl("consume", "images", "--job", "run", "--batches", "2").returncode == 0


def test_a_daemon_starts_on_a_read_only_state_dir_with_what_it_has(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    dataset: Any,
    small_disk: pathlib.Path,
    start_rank: Callable[..., Rank],
) -> None:
    pipeline = write_pipeline(dataset)
    daemon = make_daemon(pipelines=[pipeline], settings={"state_dir": str(small_disk)})
    daemon.ctl("job", "create", "run", "--pipeline", "images")
    daemon.stop()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    daemon.start()
    assert f"state_dir {small_disk} cannot be written" in warnings_of(daemon)
    assert [job["job"] for job in daemon.ctl_json("get", "jobs")] == ["run"]
    rank = start_rank(daemon, job="run", rank=0, world_size=1)
    assert [batch["step"] for batch in rank.take(3)] == [0, 1, 2]
    other = start_rank(daemon, job="undeclared", rank=0, world_size=1)
    assert [batch["step"] for batch in other.take(2)] == [0, 1]
    assert daemon.ctl("apply", "-f", pipeline, check=False).returncode == 1
    # Whatever the daemon reads itself it runs, though it cannot keep it.
    write_pipeline(dataset, seed=8)
    daemon.restart()
    [applied] = daemon.ctl_json("get", "pipelines")
    assert applied["version"] == 2
    assert "is applied until the daemon restarts" in warnings_of(daemon)


def test_a_daemon_starts_where_it_may_not_write_its_state_dir() -> None:
    with daemon_module.Daemon(uid=DAEMON_UID if ROOT else None) as daemon:
        if ROOT:
            os.chown(daemon.state_dir, 0, 0)
        daemon.state_dir.chmod(0o555)
        daemon.start()
        assert f"state_dir {daemon.state_dir} cannot be written by uid {DAEMON_UID}" in warnings_of(
            daemon
        )
        daemon.await_log("chown it to the daemon's user, mount it writable")
        daemon.state_dir.chmod(0o755)


def test_a_broken_file_is_left_alone_and_named(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], dataset: Any
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(dataset)])
    daemon.stop()
    database = daemon.state_dir / "spdld.sqlite"
    database.write_bytes(b"not what it was" * 1000)
    daemon.start()
    assert f"{database} could not be read" in warnings_of(daemon)
    daemon.await_log("move the file away")
    assert daemon.ctl("consume", "images", "--batches", "2").returncode == 0
    assert database.read_bytes() == b"not what it was" * 1000
    database.unlink()
    daemon.restart()
    assert warnings_of(daemon) == ""


def test_a_state_dir_of_another_build_is_refused_by_name_and_left_alone(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], dataset: Any
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(dataset)])
    daemon.stop()
    database = daemon.state_dir / "spdld.sqlite"
    with contextlib.closing(sqlite3.connect(database)) as other:
        # As builds before schema 1 have left it.
        other.executescript("PRAGMA application_id = 0; PRAGMA user_version = 4")
    before = database.read_bytes()
    with pytest.raises(RuntimeError) as refused:
        daemon.start()
    assert (
        f"state_dir {daemon.state_dir} cannot be used: {database} was written by an spdld from "
        "before schema 1, and this spdld reads schema 6 alone; move the directory away, or name "
        "another with --set state_dir=DIR"
    ) in str(refused.value)
    assert "ended with 1" in str(refused.value)
    assert database.read_bytes() == before
    database.rename(daemon.state_dir / "spdld.sqlite.old")
    daemon.start()
    assert daemon.ctl("consume", "images", "--batches", "2").returncode == 0


def test_a_second_daemon_on_one_state_dir_is_refused_with_the_first_ones_pid(
    daemon: Any,
) -> None:
    settings = {"state_dir": str(daemon.state_dir)}
    with daemon_module.Daemon(settings=settings) as second:
        with pytest.raises(RuntimeError) as refused:
            second.start()
        told = f"(pid {daemon.pid} on host {socket.gethostname()}, since "
        assert f"state_dir {daemon.state_dir} belongs to another daemon {told}" in str(
            refused.value
        )
        assert "--set state_dir=DIR" in str(refused.value)
        assert "ended with 1" in str(refused.value)
        daemon.kill()
        second.start()


def test_ranks_read_and_leave_while_the_record_cannot_be_written(
    make_daemon: Callable[..., Any],
    start_rank: Callable[..., Rank],
    write_pipeline: Callable[..., Any],
    dataset: Any,
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(dataset)])
    reading, leaving = (start_rank(daemon, job="run", rank=rank, world_size=2) for rank in range(2))
    for rank in (reading, leaving):
        rank.next()
    limit = [daemon._programs / "spdlctl", "--address", daemon.address]
    limit += ["tune", "run", "weight=2"]
    # Each write waits 5 s for another program's lock, and then fails.
    with contextlib.closing(sqlite3.connect(daemon.state_dir / "spdld.sqlite")) as other:
        other.execute("BEGIN EXCLUSIVE")
        limiting = subprocess.Popen(limit, stderr=subprocess.PIPE, text=True)
        reading.rest_of_epoch()
        leaving.do("close")
        _, why = limiting.communicate()
    assert limiting.returncode == 1
    assert "end the program that has it open, and try again" in why
    assert daemon.ctl_json("get", "jobs", "run")["limits"]["weight"] == 1
    assert subprocess.run(limit).returncode == 0

# SPDX-License-Identifier: Apache-2.0
"""`spdlctl drain`: no new jobs, those that are there go on to their end."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
from integration.ranks import Rank, group
from users import ANN, BOB, Place

REFUSED = "takes no new jobs"


@pytest.fixture
def pipeline(write_pipeline: Callable[..., pathlib.Path], dataset: Any) -> pathlib.Path:
    return write_pipeline(dataset)


@pytest.fixture
def start_waiting(daemon: Any) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts `spdlctl drain --wait`, and returns once it waits."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                daemon_module.build_dir() / "bin/spdlctl",
                *("--address", daemon.address, "drain", "--wait"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("drained ")
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit status, and what it said since it waits."""
    out, err = process.communicate(timeout=daemon_module.WATCHDOG_S)
    return process.returncode, out + err


def refusal(daemon: Any, *command: str) -> str:
    done = daemon.ctl(*command, check=False)
    assert done.returncode == 1, done
    return done.stderr


def test_a_job_that_is_there_goes_on_and_a_new_one_is_refused(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    first, second = group(start_rank, daemon, 2)
    first.take(1)
    told = daemon.ctl("drain").stdout
    assert told.startswith("drained since ") and f"by uid {os.geteuid()}: 1 rank is" in told, told
    told = start_rank(daemon, job="new").do("next")
    assert told["error"] == "PipelineError" and f"{REFUSED}: start job 'new' on" in told["message"]
    assert f"--address {daemon.address} undrain" in told["message"]
    assert f"{REFUSED}: start it on" in refusal(daemon, "consume", "images")
    assert REFUSED in refusal(daemon, "job", "create", "new", "--pipeline", "images")
    # The other rank comes for the first time, and one that was killed comes back.
    second.take(1)
    second.kill()
    again = start_rank(daemon, job="run", rank=1, world_size=2)
    again.take(1)
    first.take(1)
    drain = daemon.ctl_json("status")["drain"]
    assert (drain["by"], drain["ranks"], drain["awaited_jobs"]) == (os.geteuid(), 2, 0)
    assert "; no new jobs are taken" in daemon.ctl("status").stdout
    assert daemon.ctl("undrain").stdout.startswith("new jobs are taken again; it was drained since")
    start_rank(daemon, job="new").take(1)
    assert daemon.ctl_json("status")["drain"] is None


def test_a_run_that_is_there_opens_its_validation_set(
    daemon: Any, start_rank: Callable[..., Rank], dataset: Any, write_pipeline: Callable[..., Any]
) -> None:
    daemon.ctl("apply", "-f", write_pipeline(dataset, "val"))
    train = start_rank(daemon, job="run")
    train.take(1)
    daemon.ctl("drain")
    start_rank(daemon, pipeline="val", job="run").take(1)
    assert REFUSED in start_rank(daemon, pipeline="val", job="other").do("next")["message"]


def test_wait_returns_when_the_last_rank_has_left(
    daemon: Any,
    start_rank: Callable[..., Rank],
    start_waiting: Callable[[], subprocess.Popen[str]],
) -> None:
    ranks = group(start_rank, daemon, 2)
    for rank in ranks:
        rank.take(1)
    waiting = start_waiting()
    ranks[0].do("close")
    ranks[1].take(1)
    assert waiting.poll() is None
    ranks[1].kill()
    assert ended(waiting) == (0, "no rank is attached any more\n")
    # Nobody is left to wait for.
    told = daemon.ctl("drain", "--wait").stdout
    assert told.startswith("drained already, since "), told
    assert told.endswith("no rank is attached\nno rank is attached any more\n"), told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_wait_that_is_interrupted_leaves_the_drain_in_force(
    daemon: Any,
    start_rank: Callable[..., Rank],
    start_waiting: Callable[[], subprocess.Popen[str]],
    number: int,
) -> None:
    rank = start_rank(daemon, job="run")
    rank.take(1)
    waiting = start_waiting()
    waiting.send_signal(number)
    status, told = ended(waiting)
    assert status == 1
    assert "interrupted; the daemon stays drained since" in told and "1 rank is" in told, told
    assert "'spdlctl undrain' has it take new jobs again" in told, told
    assert REFUSED in refusal(daemon, "consume", "images")
    rank.take(1)


def test_wait_ends_where_somebody_undrains(
    daemon: Any,
    start_rank: Callable[..., Rank],
    start_waiting: Callable[[], subprocess.Popen[str]],
) -> None:
    start_rank(daemon, job="run").take(1)
    waiting = start_waiting()
    daemon.ctl("undrain")
    status, told = ended(waiting)
    assert status == 1 and "the daemon is drained no more" in told, told


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "stop"])
def test_wait_says_that_the_daemon_went_and_the_drain_is_kept(
    daemon: Any,
    start_rank: Callable[..., Rank],
    start_waiting: Callable[[], subprocess.Popen[str]],
    crash: bool,
) -> None:
    rank = start_rank(daemon, job="run")
    rank.take(1)
    waiting = start_waiting()
    (daemon.kill if crash else daemon.stop)()
    status, told = ended(waiting)
    assert status in (1, 3), told
    assert "while its ranks were waited for" in told and "'spdlctl drain --wait' waits" in told
    daemon.start()
    daemon.await_log("no new jobs are taken until 'spdlctl undrain'")
    assert REFUSED in refusal(daemon, "consume", "images")
    # Whether or not it has come back by now, the rank is waited for.
    waiting = start_waiting()
    rank.take(5)  # more than were in its socket
    assert waiting.poll() is None
    rank.do("close")
    assert ended(waiting) == (0, "no rank is attached any more\n")
    assert daemon.ctl("undrain").returncode == 0
    daemon.restart()
    assert daemon.ctl_json("status")["drain"] is None


def test_what_is_in_force_already_is_told(daemon: Any) -> None:
    assert daemon.ctl("undrain").stdout == "it is not drained: new jobs are taken\n"
    assert daemon.ctl_json("undrain") == {"ended": None}
    first = daemon.ctl_json("drain")
    assert first["began"] and first["drain"]["ranks"] == 0
    second = daemon.ctl_json("drain")
    assert not second["began"] and second["drain"] == first["drain"]
    assert daemon.ctl("drain").stdout.startswith("drained already, since ")
    assert daemon.ctl_json("undrain")["ended"] == first["drain"]


def test_a_drain_that_cannot_be_kept_is_refused(daemon: Any) -> None:
    database = daemon.state_dir / "spdld.sqlite"
    with contextlib.closing(daemon_module.sqlite3.connect(database)) as store:
        store.execute("DROP TABLE drain")
    assert "spdld.sqlite could not be written" in refusal(daemon, "drain")
    assert daemon.ctl_json("status")["drain"] is None
    assert daemon.ctl("consume", "images").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_only_admins_drain_and_undrain() -> None:
    access = {"roots": ["/"], "trust_root": False, "admins": [str(ANN)]}
    with contextlib.closing(Place({"access": access})) as place:
        for command in (["drain"], ["drain", "--wait"], ["undrain"]):
            for user, who in ((BOB, f"uid {BOB}"), (0, "uid 0 (access.trust_root is false)")):
                done = place.ctl(user, *command)
                assert done.returncode == 1
                expected = f"only admins {command[0]} the daemon, and {who} is not in access.admins"
                assert expected in done.stderr, done.stderr
        assert place.ctl(ANN, "drain").returncode == 0
        assert "drained" in place.ctl(BOB, "status").stdout
        assert place.ctl(BOB, "undrain").returncode == 1
        assert place.ctl(ANN, "undrain").returncode == 0

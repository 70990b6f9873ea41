# SPDX-License-Identifier: Apache-2.0
"""What one user may have of the daemon, and what the others get while somebody takes all of it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from daemon import build_dir
from greedy import PIPELINE, Bare, Greedy

ANN, BOB = 54_321, 54_322

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture
def shared(make_daemon: Callable[..., Any]) -> Any:
    """A daemon of root's that all users may come to, with data that all may read."""
    limits = {"connections": 8, "unattached": "4MiB", "pipelines": 2, "jobs": 2}
    daemon = make_daemon(settings={"limits": limits})
    daemon.directory.chmod(0o755)
    daemon.runtime_dir.chmod(0o755)
    data = daemon.directory / "data"
    data.mkdir(mode=0o755)
    for i in range(8):
        (data / f"{i}.bin").write_bytes(b"bytes")
        (data / f"{i}.bin").chmod(0o644)
    daemon.ctl("apply", "-f", "-", stdin=PIPELINE.format(name="images", root=data))
    return daemon


def users(daemon: Any) -> dict[int, Any]:
    return {user["uid"]: user for user in daemon.ctl_json("get", "users")}


def ctl_as(daemon: Any, uid: int, *arguments: str, stdin: str = "") -> Any:
    ctl = daemon.directory / "spdlctl"
    if not ctl.exists():
        ctl.write_bytes((build_dir() / "bin/spdlctl").read_bytes())
        ctl.chmod(0o755)
    return subprocess.run(
        [ctl, "--address", daemon.address, *arguments],
        **dict(user=uid, group=uid, extra_groups=[]),
        cwd="/",
        input=stdin,
        capture_output=True,
        text=True,
    )


def users_seen_by(daemon: Any, uid: int) -> list[int]:
    done = ctl_as(daemon, uid, "get", "users", "-o", "json")
    return [user["uid"] for user in json.loads(done.stdout)]


def apply_as(daemon: Any, uid: int, name: str) -> str:
    """Empty if it is applied, else what spdlctl says."""
    text = PIPELINE.format(name=name, root=daemon.directory / "data")
    done = ctl_as(daemon, uid, "apply", "-f", "-", stdin=text)
    return done.stderr if done.returncode else ""


def create_as(daemon: Any, uid: int, job: str) -> str:
    done = ctl_as(daemon, uid, "job", "create", job, "--pipeline", "images")
    return done.stderr if done.returncode else ""


def resident_bytes(pid: int) -> int:
    pages = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_a_user_with_all_connections_keeps_nobody_else_out(shared: Any) -> None:
    with Greedy(shared.address, ANN, "--connections", "12") as greedy:
        told = greedy.answers()["connections"]
        assert told.pop("") == 8
        (refusal,) = told
        assert refusal.startswith(f"8: user {ANN} has 8 consumers already"), refusal
        assert users(shared)[ANN]["connections"] == {"used": 8, "limit": 8}
        with Greedy(shared.address, BOB, "--connections", "8") as other:
            assert other.answers()["connections"] == {"": 8}
        assert shared.ctl("consume", "images", "--batches", "1").returncode == 0


def test_users_see_their_own_row_and_root_sees_all(shared: Any) -> None:
    with Greedy(shared.address, ANN, "--connections", "1") as greedy:
        greedy.answers()
        assert users_seen_by(shared, BOB) == [BOB]
        assert users_seen_by(shared, ANN) == [ANN]
        assert {0, ANN} <= users(shared).keys()


def test_texts_without_an_attach_take_no_more_than_a_user_may(shared: Any) -> None:
    before = resident_bytes(shared.pid)
    with Greedy(shared.address, ANN, "--texts", "8") as greedy:
        told = greedy.answers()["texts"]
        assert told.pop("") == 4
        (refusal,) = told
        assert refusal.startswith("14: a pipeline of 1048576 bytes"), refusal
        assert users(shared)[ANN]["unattached_bytes"] == {"used": 4 << 20, "limit": 4 << 20}
        assert resident_bytes(shared.pid) - before < 32 << 20


def test_a_user_applies_no_more_pipelines_than_it_may(shared: Any) -> None:
    assert [apply_as(shared, ANN, name) for name in ("a", "b")] == ["", ""]
    told = apply_as(shared, ANN, "c")
    assert f"user {ANN} has 2 pipelines, and limits.pipelines allows 2: delete some" in told
    assert users(shared)[ANN]["pipelines"] == {"used": 2, "limit": 2}
    # Those that loaders bring are none of these.
    with Greedy(
        *(shared.address, ANN, "--pipelines", "2", "--root", str(shared.directory / "data"))
    ) as loaders:
        assert loaders.answers()["made"] == {"": 2}
    shared.restart()
    assert users(shared)[ANN]["pipelines"] == {"used": 2, "limit": 2}
    assert apply_as(shared, ANN, "b") == ""
    assert [apply_as(shared, 0, f"root-{i}") for i in range(3)] == ["", "", ""]
    assert ctl_as(shared, ANN, "delete", "pipeline", "a").returncode == 0
    assert apply_as(shared, ANN, "c") == ""


def test_a_user_has_no_more_jobs_than_it_may(shared: Any) -> None:
    assert [create_as(shared, ANN, job) for job in ("a", "b")] == ["", ""]
    told = create_as(shared, ANN, "c")
    assert f"user {ANN} has 2 jobs, declared or running, and limits.jobs allows 2" in told
    with Greedy(shared.address, ANN, "--jobs", "1") as loader:
        (refusal,) = loader.answers()["made"]
        assert refusal.startswith(f"8: user {ANN} has 2 jobs"), refusal
    shared.restart()
    assert users(shared)[ANN]["jobs"] == {"used": 2, "limit": 2}
    assert [create_as(shared, uid, "other") for uid in (BOB, 0)] == ["", ""]
    assert ctl_as(shared, ANN, "delete", "job", "a").returncode == 0
    assert create_as(shared, ANN, "c") == ""


def test_a_text_longer_than_a_pipeline_may_be_is_refused_at_once(shared: Any) -> None:
    with Greedy(shared.address, ANN, "--texts", "1", "--text-bytes", str(16 << 20)) as greedy:
        (refusal,) = greedy.answers()["texts"]
    assert "a pipeline of 16777216 bytes; 1048576 are allowed" in refusal


def test_a_consumer_that_floods_queries_is_ended_and_others_are_answered(shared: Any) -> None:
    flood = Bare(shared.address)
    assert flood.greet() == ""
    flood.attach("images")
    while flood.receive()[0] != 67:
        pass
    kinds: list[int] = []
    flood.socket.setblocking(False)
    try:
        while not kinds or kinds[-1] not in (0, 65):
            for _ in range(64):
                flood.query()
            try:
                kinds.append(flood.receive()[0])
            except BlockingIOError:
                continue
    except BlockingIOError:
        # Its own queue is full: the daemon reads, and what it says is yet to come.
        flood.socket.setblocking(True)
        while not kinds or kinds[-1] not in (0, 65):
            kinds.append(flood.receive()[0])
    assert shared.ctl("consume", "images", "--batches", "2").returncode == 0

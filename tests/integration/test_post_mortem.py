# SPDX-License-Identifier: Apache-2.0
"""What operators can still see of a job, and of its sessions, when it is over."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank

ITEMS = 24


@pytest.fixture
def data(make_dataset: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    """A dataset of this test's own, whose item 5 is no image."""
    made = make_dataset(count=ITEMS, name=request.node.name)
    made.files[5].write_text("no image\n")
    return made


@pytest.fixture
def pipeline(write_pipeline: Callable[..., pathlib.Path], data: Any) -> pathlib.Path:
    return write_pipeline(data, shuffle="none", on_error={"decode": "replace"})


def ended_jobs(daemon: Any, wait_until: Callable[..., Any], count: int = 1) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]] | None:
        jobs = daemon.ctl_json("get", "jobs", "--ended")
        return jobs if len(jobs) == count else None

    return wait_until(found, f"{count} ended jobs")


@pytest.mark.parametrize("job", ["run", None], ids=["named", "private"])
def test_failures_of_an_ended_job_are_listed_without_being_asked_for(
    daemon: Any,
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    job: str | None,
) -> None:
    rank = start_rank(daemon, job=job)
    rank.rest_of_epoch()
    rank.do("close")
    (ended,) = ended_jobs(daemon, wait_until)
    assert ended["end"]["how"] == "done"
    assert ended["end"]["at"]["epoch"] == 1
    assert ended["replaced"] == 1
    # Once an epoch: what is read ahead counts, too.
    failures = daemon.ctl_json("get", "failures", ended["job"])
    assert {(failure["item"], failure["ended_stream"]) for failure in failures} == {(5, False)}
    assert all(failure["unix_ms"] <= ended["end"]["unix_ms"] for failure in failures)
    unknown = daemon.ctl("get", "failures", "another", check=False)
    assert unknown.returncode == 1 and "there is no job 'another'" in unknown.stderr
    mistaken = daemon.ctl("get", "failures", ended["pipeline"], check=False)
    if ended["job"] != ended["pipeline"]:
        assert mistaken.returncode == 2
        assert f"get failures --pipeline {ended['pipeline']}" in mistaken.stderr


def test_each_of_several_quick_runs_leaves_what_ended_it(
    daemon: Any, wait_until: Callable[..., Any], data: Any
) -> None:
    # The first batch cannot be made, so that a run ends long before anything is kept by itself.
    data.files[0].unlink()
    for _ in range(4):
        done = daemon.ctl("consume", "images", "--job", "run", check=False)
        assert "is gone since the dataset was listed" in done.stderr

    def ends() -> int:
        failures = daemon.ctl_json("get", "failures", "run")
        return sum(failure["ended_stream"] for failure in failures)

    assert ends() == 4
    # Also of those that were kept by then.
    wait_until(lambda: len(daemon.ctl_json("get", "jobs", "--ended")) == 1, "the job's end")
    daemon.restart()
    assert ends() == 4


def test_what_ended_a_job_is_recorded_with_its_item(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any], data: Any
) -> None:
    data.files[9].unlink()
    rank = start_rank(daemon, job="run")
    with pytest.raises(Exception, match="is gone since the dataset was listed"):
        rank.rest_of_epoch()
    rank.do("close")
    failure = daemon.ctl_json("get", "failures", "run")[-1]
    assert (failure["item"], failure["ended_stream"]) == (9, True)
    assert failure["code"] == "NOT_FOUND"
    (ended,) = ended_jobs(daemon, wait_until)
    assert ended["end"]["how"].startswith("failed: ")
    assert str(data.files[9]) in ended["end"]["how"]
    assert "shard ended" in daemon.ctl("get", "failures", "run").stdout


def test_the_record_of_an_end_outlives_the_daemon_and_goes_with_its_job(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    rank = start_rank(daemon, job="run")
    rank.rest_of_epoch()
    rank.do("close")
    told = ("job", "pipeline", "owner", "end", "items", "replaced", "cpu_s", "seed", "batch_size")
    (before,) = ended_jobs(daemon, wait_until)
    stages = daemon.ctl_json("get", "stages", "--ended")
    failures = daemon.ctl_json("get", "failures")
    assert stages[0]["stage"] == "fetch"
    assert sum(stage["tasks"] for stage in stages) >= 2 * ITEMS

    daemon.restart()
    (after,) = daemon.ctl_json("get", "jobs", "--ended")
    assert [after[name] for name in told] == [before[name] for name in told]
    assert daemon.ctl_json("get", "stages", "--ended") == stages
    assert daemon.ctl_json("get", "failures") == failures

    daemon.ctl("delete", "job", "run")
    assert daemon.ctl_json("get", "jobs", "--ended") == []
    assert daemon.ctl_json("get", "failures") == []


def test_failures_survive_a_daemon_that_is_killed_while_the_job_runs(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    rank = start_rank(daemon, job="run")
    rank.rest_of_epoch()
    # What is a second old is on disk: the ledger's place is written with it.
    wait_until(
        lambda: daemon.ctl_json("get", "jobs", "run")["ledger"]["at"]["epoch"] == 1,
        "the ledger's next epoch",
    )
    daemon.kill()
    daemon.start()
    assert {failure["item"] for failure in daemon.ctl_json("get", "failures", "run")} == {5}


def test_a_killed_rank_and_an_evicted_one_are_told_apart(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    killed = start_rank(daemon, job="killed")
    killed.do("next")
    killed.kill()
    (first,) = ended_jobs(daemon, wait_until)
    assert first["end"]["how"] in (
        "its process ended without closing it",
        "its connection was lost",
    )

    evicted = start_rank(daemon, job="evicted")
    evicted.do("next")
    (session,) = daemon.ctl_json("get", "sessions", "--job", "evicted")
    daemon.ctl("evict", str(session["id"]), "--reason", "node drains")
    last = ended_jobs(daemon, wait_until, count=2)[0]
    assert last["job"] == "evicted"
    assert last["end"]["how"] == f"evicted by uid {os.geteuid()}: node drains"
    daemon.await_log(f"job 'evicted' ended: evicted by uid {os.geteuid()}")


def test_deletions_and_restores_are_in_the_log(daemon: Any) -> None:
    daemon.ctl("job", "create", "declared", "--pipeline", "images", "--shards", "1")
    daemon.restart()
    daemon.await_log("pipeline 'images' version 1 restored: 24 items")
    daemon.await_log("job 'declared' on pipeline 'images' restored: it goes on at epoch 0")
    daemon.ctl("delete", "job", "declared")
    daemon.ctl("delete", "pipeline", "images")
    daemon.await_log(f"job 'declared' on pipeline 'images' deleted by uid {os.geteuid()}")
    daemon.await_log(f"pipeline 'images' deleted by uid {os.geteuid()}")


def test_status_counts_connections_and_slots(daemon: Any, start_rank: Callable[..., Rank]) -> None:
    rank = start_rank(daemon, job="run")
    rank.do("next")
    data = daemon.ctl_json("status")["data"]
    assert data["connections"] == 1
    assert data["accepted"] >= 1
    slots = ("slots_free", "slots_loaned", "slots_ready", "slots_leased", "slots_retired")
    assert sum(data[name] for name in slots) > 0
    shown = daemon.ctl("status").stdout
    assert "consumers  1 connection open" in shown
    assert "slots      " in shown

# SPDX-License-Identifier: Apache-2.0
"""What `spdlctl diagnose` says of ranks that wait."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from integration.hung_mount import HungMount
from integration.ranks import Rank

ITEMS, BATCH = 24, 4


@pytest.fixture
def dataset(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=ITEMS)


@pytest.fixture
def pipeline(dataset: Any, write_pipeline: Callable[..., Any]) -> pathlib.Path:
    return write_pipeline(dataset, batch={"size": BATCH, "last": "keep"})


def diagnosis(daemon: Any, *job: str) -> dict[str, Any]:
    [found] = daemon.ctl_json("diagnose", *job)
    return found


def causes(daemon: Any) -> list[str]:
    return [finding["cause"] for finding in diagnosis(daemon, "run")["findings"]]


def test_a_rank_whose_next_epoch_is_closed_is_told_the_command_that_opens_it(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    daemon.ctl_json(
        "job", "create", "run", "--pipeline", "images", "--shards", "1", "--epochs", "manual"
    )
    rank = start_rank(daemon, job="run", shard=-1)
    rank.rest_of_epoch()
    rank.ask("next")
    wait_until(lambda: causes(daemon)[:1] == ["epoch"], "the closed epoch is named")
    [finding] = diagnosis(daemon, "run")["findings"]
    assert diagnosis(daemon, "run")["faster"] > 1
    shown = daemon.ctl("diagnose").stdout
    assert f"   try      {finding['command']}\n" in shown
    assert "its rank waits for data" in shown
    assert not rank.answered()
    daemon.ctl(*finding["command"].split()[1:])
    assert rank.answer()["epoch"] == 1


def test_storage_that_does_not_answer_is_named_with_its_mount(
    mount: Callable[..., HungMount],
    dataset: Any,
    write_pipeline: Callable[..., Any],
    make_daemon: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    tmp_path: pathlib.Path,
) -> None:
    sick = mount("sick", dataset.root)
    source = {"files": {"root": str(tmp_path / "sick"), "pattern": "**/*.jpg"}}
    daemon = make_daemon(pipelines=[write_pipeline(dataset, source=source)])
    rank = start_rank(daemon, job="run")
    sick.hang()
    rank.do("place")
    rank.ask("next")
    wait_until(lambda: causes(daemon)[:1] == ["hung_storage"], "the storage is named")
    says = diagnosis(daemon, "run")["findings"][0]["says"]
    assert str(tmp_path / "sick") in says
    assert ".jpg) is being read for" in says
    sick.let_go()
    rank.answer()


def test_what_a_rank_lacked_adds_up_to_no_more_than_its_time(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    rank = start_rank(daemon, job="run")
    for _ in range(3):
        rank.rest_of_epoch()
    wait_until(lambda: daemon.ctl_json("get", "sessions")[0]["shortages_lately"], "rates are known")
    [session] = daemon.ctl_json("get", "sessions")
    for times in (session["shortages"], session["shortages_lately"]):
        attached = times.pop("attached_s")
        assert sum(times.values()) <= attached * 1.001
    assert sum(session["shortages"].values()) > 0
    assert session["shortages_lately"].keys() == session["shortages"].keys()
    assert 0 <= session["waited_share"] <= 1


def test_a_job_that_is_not_there_is_an_error_and_no_jobs_are_none(daemon: Any) -> None:
    assert daemon.ctl("diagnose").stdout == "no jobs\n"
    asked = daemon.ctl("diagnose", "run", check=False)
    assert asked.returncode == 1
    assert "there is no job 'run'" in asked.stderr


def test_a_job_that_has_only_begun_is_not_judged(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    daemon.ctl_json("job", "create", "run", "--pipeline", "images", "--shards", "1")
    assert diagnosis(daemon)["waited_share"] is None
    assert "no rank is attached" in daemon.ctl("diagnose", "run").stdout

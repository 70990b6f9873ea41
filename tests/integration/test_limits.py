# SPDX-License-Identifier: Apache-2.0
"""What a job may take: workers, weight and arena bytes, said at its start or while it runs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank

ITEMS, BATCH = 48, 4


@pytest.fixture
def pipeline(
    make_dataset: Callable[..., Any], write_large_pipeline: Callable[..., Any]
) -> pathlib.Path:
    return write_large_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH, "last": "keep"})


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], pipeline: pathlib.Path) -> Any:
    return make_daemon(pipelines=[pipeline], settings={"executor": {"cpu_threads": 2}})


def create(daemon: Any, name: str, *more: str) -> Any:
    return daemon.ctl_json("job", "create", name, "--pipeline", "images", "--shards", "1", *more)


def attach(start_rank: Callable[..., Rank], daemon: Any, name: str, **options: Any) -> Rank:
    return start_rank(daemon, job=name, shard=-1, **options)


def limits(daemon: Any, name: str) -> dict[str, Any]:
    return daemon.ctl_json("get", "jobs", name)["limits"]


def test_limits_are_shown_as_they_were_given(daemon: Any) -> None:
    made = create(daemon, "run", "--weight", "2.5", "--cpus", "1", "--memory", "64MiB")
    assert made["limits"] == limits(daemon, "run")
    assert made["limits"]["weight"] == 2.5
    assert made["limits"]["cpus"] == 1
    assert int(made["limits"]["arena_bytes"]) == 64 << 20
    assert limits(daemon, "run") == made["limits"]


@pytest.mark.parametrize("weight", ["0.0001", "1001"])
def test_a_weight_out_of_bounds_is_refused(daemon: Any, weight: str) -> None:
    create(daemon, "run")
    before = limits(daemon, "run")
    for refused in (
        daemon.ctl("tune", "run", f"weight={weight}", check=False),
        daemon.ctl(
            *("job", "create", "other", "--pipeline", "images", "--weight", weight), check=False
        ),
    ):
        assert refused.returncode != 0
        assert "0.001" in refused.stderr
    assert limits(daemon, "run") == before
    assert [job["job"] for job in daemon.ctl_json("get", "jobs")] == ["run"]


def test_a_consumer_whose_arena_is_over_the_jobs_limit_is_refused_with_the_numbers(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    create(daemon, "run", "--memory", "64KiB")
    refused = attach(start_rank, daemon, "run").do("next")
    assert refused["error"] == "PipelineError"
    assert "64.0 KiB" in refused["message"] or "65536" in refused["message"]
    assert daemon.ctl_json("get", "sessions") == []
    # Another job has its own limit, and this one takes its consumer once it may have more.
    create(daemon, "other")
    attach(start_rank, daemon, "other").take(1)
    daemon.ctl("tune", "run", "memory=256MiB")
    attach(start_rank, daemon, "run").take(1)


def test_a_limit_that_is_lowered_leaves_who_is_there_and_refuses_who_comes(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    create(daemon, "run")
    rank = attach(start_rank, daemon, "run")
    rank.take(1)
    used = int(daemon.ctl_json("get", "jobs", "run")["arena_bytes"])
    assert used > 0
    daemon.ctl("tune", "run", f"memory={used // 2}")
    rank.take(3)
    rank.kill()
    wait_until(lambda: daemon.ctl_json("get", "sessions") == [], "the session's end")
    refused = attach(start_rank, daemon, "run").do("next")
    assert refused["error"] == "PipelineError"
    daemon.ctl("tune", "run", "--reset", "memory")
    attach(start_rank, daemon, "run").take(1)


def test_a_jobs_arena_bytes_are_given_back_when_its_consumers_go(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    create(daemon, "run")
    for _ in range(3):
        rank = attach(start_rank, daemon, "run")
        rank.next(hold=True)
        assert int(daemon.ctl_json("get", "jobs", "run")["arena_bytes"]) > 0
        rank.kill()
        wait_until(
            lambda: int(daemon.ctl_json("get", "jobs", "run").get("arena_bytes", 0)) == 0,
            "the job's arenas back",
        )


def test_a_job_of_one_worker_leaves_the_other_to_others(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    create(daemon, "small", "--cpus", "1")
    create(daemon, "large", "--seed", "8")  # rows of its own: nothing is shared
    small, large = (attach(start_rank, daemon, name) for name in ("small", "large"))
    most = 0
    for _ in range(3):
        for rank in (small, large):
            rank.ask("next")
        stages = [s for s in daemon.ctl_json("get", "stages") if s["stage"] != "fetch"]
        most = max([most, *(s.get("in_flight", 0) for s in stages if s["job"] == "small")])
        for rank in (small, large):
            rank.answer()
    assert most <= 1
    assert len(large.rest_of_epoch()) + 3 == ITEMS // BATCH
    assert len(small.rest_of_epoch()) + 3 == ITEMS // BATCH


def test_limits_survive_the_daemon(daemon: Any) -> None:
    create(daemon, "run", "--cpus", "2")
    daemon.ctl("tune", "run", "weight=4", "memory=128MiB")
    before = limits(daemon, "run")
    daemon.kill()
    daemon.start()
    assert limits(daemon, "run") == before
    assert before["weight"] == 4


def test_a_job_that_there_is_not_has_no_limits(daemon: Any) -> None:
    refused = daemon.ctl("tune", "nobody", "cpus=1", check=False)
    assert refused.returncode == 1
    assert "there is no job 'nobody'" in refused.stderr

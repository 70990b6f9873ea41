# SPDX-License-Identifier: Apache-2.0
"""What operators do to running jobs with spdlctl: swap, roll back, limit, skip."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank
from integration.versions import CROPPED, PLAIN, SMALLER, phases

ITEMS, BATCH = 48, 4
STEPS = ITEMS // BATCH


@pytest.fixture
def write(
    make_dataset: Callable[..., Any],
    write_version: Callable[..., pathlib.Path],
) -> Callable[..., pathlib.Path]:
    """write(stages): a file of its own with pipeline 'images', or another name's."""
    data = make_dataset(count=ITEMS, texture=True)

    def write(stages: list[Any], name: str = "images") -> pathlib.Path:
        return write_version(data, name, stages=stages, batch={"size": BATCH})

    return write


@pytest.fixture
def daemons(make_daemon: Callable[..., Any], write: Callable[..., pathlib.Path]) -> list[Any]:
    """Two, as on two nodes, which serve 'images' and what it looks like 'plain' and 'cropped'."""
    files = [write(PLAIN), write(PLAIN, "plain"), write(CROPPED, "cropped")]
    return [make_daemon(pipelines=files) for _ in range(2)]


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], write: Callable[..., pathlib.Path]) -> Any:
    return make_daemon(pipelines=[write(PLAIN), write(PLAIN, "plain"), write(CROPPED, "cropped")])


def create(daemon: Any, *more: str, shards: int = 1) -> Any:
    return daemon.ctl_json(
        "job", "create", "run", "--pipeline", "images", "--shards", str(shards), *more
    )


def read(daemon: Any, pipeline: str, *more: str) -> list[str]:
    """The digests of an epoch's batches, a line each."""
    return daemon.ctl("consume", pipeline, "--digest", *more).stdout.splitlines()


def read_job(daemon: Any, rank: int = 0, world_size: int = 1) -> list[str]:
    of_shard = ["--rank", str(rank), "--world-size", str(world_size)]
    return read(daemon, "images", "--job", "run", *of_shard)


def switched(daemon: Any, step: int, rank: int = 0, world_size: int = 1) -> list[str]:
    """What a shard must read that changes from plain to cropped at `step`."""
    of_shard = ["--rank", str(rank), "--world-size", str(world_size), "--job", "reference"]
    before, after = (read(daemon, name, *of_shard) for name in ("plain", "cropped"))
    assert all(one != other for one, other in zip(before, after, strict=True))
    return before[:step] + after[step:]


def test_a_job_changes_at_the_step_that_was_named(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    create(daemon)
    said = daemon.ctl("apply", "-f", write(CROPPED), "--job", "run", "--at", "step:0/5").stdout
    assert "job 'run' changes to version 2 at epoch 0, step 5\n" in said
    assert phases(daemon) == [(0, 0, 1), (0, 5, 2)]
    assert "1 -> 2 at 0/5" in daemon.ctl("get", "jobs").stdout
    assert read_job(daemon) == switched(daemon, 5)


def test_a_switch_that_lies_ahead_survives_the_daemons_death(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    create(daemon)
    daemon.ctl("apply", "-f", write(CROPPED), "--job", "run", "--at", "step:0/5")
    daemon.kill()
    daemon.start()
    assert phases(daemon) == [(0, 0, 1), (0, 5, 2)]
    assert read_job(daemon) == switched(daemon, 5)


def test_an_apply_leaves_running_jobs_and_says_how_to_change_them(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    create(daemon)
    changed = write(CROPPED)
    said = daemon.ctl("apply", "-f", changed).stdout
    assert "pipeline 'images' version 2 applied" in said
    command = f"spdlctl --address {daemon.address} apply -f {changed} --job run --at next-epoch"
    assert said.endswith(f"1 running job stays on version 1. To change it:\n  {command}\n")
    assert phases(daemon) == [(0, 0, 1)]
    daemon.ctl(*command.removeprefix(f"spdlctl --address {daemon.address} ").split())
    assert phases(daemon)[-1][2] == 2


def test_another_schema_is_refused_unless_it_is_allowed(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    create(daemon)
    smaller = write(SMALLER)
    at = ["--job", "run", "--at", "step:0/5"]
    refused = daemon.ctl("apply", "-f", smaller, *at, check=False)
    assert refused.returncode == 1
    assert "--allow-schema-change" in refused.stderr
    assert phases(daemon) == [(0, 0, 1)]
    daemon.ctl("apply", "-f", smaller, *at, "--allow-schema-change")
    assert phases(daemon)[-1][:2] == (0, 5)


def test_a_rollback_is_a_version_of_its_own(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    daemon.ctl("apply", "-f", write(CROPPED))
    create(daemon)
    said = daemon.ctl("rollback", "images", "--all-jobs", "--at", "step:0/3").stdout
    assert "pipeline 'images' rolled back, as version 3" in said
    history = daemon.ctl_json("get", "pipelines", "images", "--history")
    assert [revision["version"] for revision in history] == [1, 2, 3]
    assert [revision["current"] for revision in history] == [False, False, True]
    assert history[0]["content_digest"] == history[2]["content_digest"]
    assert history[2]["note"] == "rollback to version 1"
    assert phases(daemon) == [(0, 0, 2), (0, 3, 3)]
    unknown = daemon.ctl("rollback", "images", "--to", "9", check=False)
    assert unknown.returncode == 1
    assert "9" in unknown.stderr


def test_a_job_on_two_daemons_changes_at_one_step(
    daemons: list[Any], write: Callable[..., pathlib.Path]
) -> None:
    for daemon in daemons:
        create(daemon, shards=2)
    here, there = daemons
    at = ["--job", "run", "--at", "step:0/3"]
    said = here.ctl("--address", there.address, "apply", "-f", write(CROPPED), *at).stdout
    assert said.count("job 'run' changes to version 2 at epoch 0, step 3\n") == 2
    for rank, daemon in enumerate(daemons):
        assert phases(daemon) == [(0, 0, 1), (0, 3, 2)]
        assert read_job(daemon, rank, 2) == switched(daemon, 3, rank, 2)


def test_a_job_changes_nowhere_if_one_daemon_is_beyond_the_step(
    daemons: list[Any], write: Callable[..., pathlib.Path]
) -> None:
    for daemon in daemons:
        create(daemon, shards=2)
    here, there = daemons
    read_job(there, 1, 2)
    at = ["--job", "run", "--at", "step:0/3"]
    refused = here.ctl("--address", there.address, "apply", "-f", write(CROPPED), *at, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"spdlctl: nothing has changed: {there.address} refused: "), (
        refused.stderr
    )
    for daemon in daemons:
        assert phases(daemon) == [(0, 0, 1)]
        assert daemon.ctl_json("get", "pipelines", "images")["version"] == 1
    assert read_job(here, 0, 2) == switched(here, STEPS, 0, 2), "nobody holds it back"


def test_limits_are_changed_and_lifted(daemon: Any) -> None:
    made = create(daemon, "--weight", "0.5", "--cpus", "1")
    assert made["limits"] == {"weight": 0.5, "cpus": 1, "arena_bytes": None}
    daemon.ctl("tune", "run", "cpus=all", "memory=64MiB")
    assert daemon.ctl_json("get", "jobs", "run")["limits"] == {
        "weight": 0.5,
        "cpus": None,
        "arena_bytes": 64 << 20,
    }
    assert len(read_job(daemon)) == STEPS


def test_skipped_steps_are_left_out_once(daemon: Any, start_rank: Callable[..., Rank]) -> None:
    rank = start_rank(daemon, job="run")
    steps = [rank.next()["step"]]
    daemon.ctl("job", "seek", "run", "--skip", "2")
    steps += [batch["step"] for batch in rank.rest_of_epoch()]
    missing = sorted(set(range(STEPS)) - set(steps))
    assert len(steps) == STEPS - 2
    assert missing[1] == missing[0] + 1

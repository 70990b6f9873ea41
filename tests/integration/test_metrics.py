# SPDX-License-Identifier: Apache-2.0
"""`spdlctl metrics`: what Prometheus is told, and the alerts on it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import metrics as prometheus
import pytest
import spdld
from integration.ranks import Rank
from metrics import Labels, jobs_in, read
from users import ANN, BOB, Place

ITEMS, BATCH = 24, 4
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool of Debian's package prometheus is not here"
)


@pytest.fixture
def pipeline(write_pipeline: Callable[..., pathlib.Path], dataset: Any) -> pathlib.Path:
    return write_pipeline(dataset)


def labelled(**labels: str) -> Labels:
    return frozenset(labels.items())


def promtool(*arguments: str | pathlib.Path, given: str | None = None) -> str:
    """What it says against it."""
    done = subprocess.run(
        ["promtool", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=daemon_module.WATCHDOG_S,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_metrics_are_what_get_shows(daemon: Any, start_rank: Callable[..., Rank]) -> None:
    name = 'run "7"\\n\nof Zoë'
    # With one epoch, nothing is handed out any more once it has been read.
    daemon.ctl("job", "create", name, "--pipeline", "images", "--shards", "2", "--max-epochs", "1")
    ranks = [start_rank(daemon, job=name, rank=rank, world_size=2) for rank in range(2)]
    for rank in ranks:
        assert len(rank.rest_of_epoch()) == ITEMS // BATCH // 2

    metrics = read(daemon.ctl("metrics").stdout)
    [job] = daemon.ctl_json("get", "jobs")
    of_job = {"job": name, "pipeline": "images", "owner": str(os.geteuid())}
    assert jobs_in(metrics) == {(of_job["owner"], name, "images")}
    assert metrics["spdld_job_arena_bytes"][labelled(**of_job)] == job["arena_bytes"] > 0
    assert metrics["spdld_job_steps_per_epoch"][labelled(**of_job)] == job["steps_per_epoch"]
    for session in daemon.ctl_json("get", "sessions"):
        of_session = labelled(**of_job, shard=str(session["shard"]), replica="0")
        batches = metrics["spdld_session_batches_total"][of_session]
        assert batches == session["batches"] == ITEMS // BATCH // 2
        assert metrics["spdld_session_rows_total"][of_session] == BATCH * batches
        assert metrics["spdld_session_credits"][of_session] == session["credits"]
    handed = sum(metrics["spdld_session_rows_total"].values())
    assert metrics["spdld_rows_total"][labelled()] == handed == ITEMS
    assert metrics["spdld_job_rows_total"][labelled(**of_job)] == handed
    stages = {stage["stage"] for stage in daemon.ctl_json("get", "stages")}
    told = metrics["spdld_stage_tasks_total"]
    assert {dict(labels)["stage"] for labels in told} == stages
    assert min(told.values()) >= handed
    assert metrics["spdld_sessions"][labelled()] == 2
    version = daemon.ctl_json("status")["version"]
    assert metrics["spdld_build_info"] == {labelled(version=version): 1}


def test_how_a_loop_fares_is_told_as_its_client_says(daemon: Any) -> None:
    options = {"job": "run", "address": daemon.address}
    with spdld.Loader("images", map=lambda batch: batch.step, **options) as loader:
        told = {"map_s": 0}
        while told["map_s"] == 0 or told["between_s"] == 0:  # it is told once a second
            assert len(list(loader)) == ITEMS // BATCH
            [told] = daemon.ctl_json("get", "sessions")
        metrics = read(daemon.ctl("metrics").stdout)
        stats = loader.stats()
    assert 0 < told["steps"] <= stats["batches"]
    assert told["map_s"] <= stats["map_s"]
    assert told["between_s"] <= stats["between_s"]
    waits = told["waits_by_length"]
    assert len(waits) == 6
    assert 0 <= told["waits"] - sum(waits) <= 1
    assert told["waits"] >= 1, "for the first batch"

    def of(name: str, **more: str) -> float:
        labels = {"job": "run", "pipeline": "images", "owner": str(os.geteuid())}
        samples = metrics[f"spdld_session_{name}"]
        return samples[labelled(**labels, shard="0", replica="0", **more)]

    bounds = ("0.001", "0.01", "0.1", "1", "10", "+Inf")
    up_to = [of("wait_seconds_bucket", le=bound) for bound in bounds]
    assert up_to == sorted(up_to)
    assert up_to[-1] == of("wait_seconds_count") >= sum(waits)
    assert of("wait_seconds_sum") == of("waited_seconds_total") >= told["waited_s"]
    assert of("steps_total") >= told["steps"]
    assert of("between_seconds_total") >= told["between_s"]
    assert of("map_seconds_total") >= told["map_s"]


def test_a_job_that_has_ended_is_told_of_no_more(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    rank = start_rank(daemon, job="run")
    handed = BATCH * len(rank.rest_of_epoch())
    rank.do("close")
    wait_until(lambda: daemon.ctl_json("get", "jobs") == [], "the job's end")
    metrics = read(daemon.ctl("metrics").stdout)
    assert jobs_in(metrics) == set()
    assert metrics["spdld_rows_total"][labelled()] >= handed == ITEMS


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_metrics_are_of_what_the_caller_may_see() -> None:
    with contextlib.closing(Place()) as place:
        path = place.pipeline("shared", place.dataset("data", owner=0))
        assert place.apply(0, path) == ""
        for user in (ANN, BOB):
            assert place.ctl(user, "job", "create", "run", "--pipeline", "shared").returncode == 0
        told = {user: read(place.ctl(user, "metrics").stdout) for user in (ANN, BOB, 0)}
    of_ann, of_bob = ((str(user), "run", "shared") for user in (ANN, BOB))
    assert jobs_in(told[ANN]) == {of_ann}
    assert jobs_in(told[BOB]) == {of_bob}
    assert jobs_in(told[0]) == {of_ann, of_bob}


def test_alerts_and_the_dashboard_are_on_metrics_that_there_are(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    source = daemon_module.REPOSITORY / "server/observe/metrics.cpp"
    names = set(re.findall(r'"(spdld_\w+)"', source.read_text()))
    for histogram in re.findall(r'histogram\(\s*"(spdld_\w+)"', source.read_text()):
        names |= {histogram + sample for sample in ("_bucket", "_count", "_sum")}
    start_rank(daemon, job="run").take(1)
    told = set(read(daemon.ctl("metrics").stdout))
    assert told and told <= names
    for kind, expressions in (
        ("alerts", prometheus.alerts()),
        ("dashboard", [expression for expression, _ in prometheus.dashboard()]),
    ):
        used = {name for expression in expressions for name in prometheus.names(expression)}
        assert used and used <= names, kind


@needs_promtool
def test_promtool_has_nothing_against_the_metrics(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    start_rank(daemon, job='run "7"\n').take(1)
    assert promtool("check", "metrics", given=daemon.ctl("metrics").stdout) == ""


@needs_promtool
def test_alerts_come_when_they_should() -> None:
    assert promtool("check", "rules", prometheus.DIRECTORY / "spdld.rules.yml") == ""
    assert promtool("test", "rules", prometheus.DIRECTORY / "spdld.rules.test.yml") == ""

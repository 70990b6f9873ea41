# SPDX-License-Identifier: Apache-2.0
"""What `spdlctl get stages` tells of a job's costs: bytes, ops of the rows that are timed, failures."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank

ITEMS = 96


def stages_of(daemon: Any) -> dict[str, dict[str, Any]]:
    return {stage["stage"]: stage for stage in daemon.ctl_json("get", "stages")}


def read_epochs(rank: Rank, count: int) -> None:
    for _ in range(count):
        rank.rest_of_epoch()


def test_a_stage_tells_what_was_brought_and_what_each_fields_ops_take(
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    make_daemon: Callable[..., Any],
    start_rank: Callable[..., Rank],
) -> None:
    data = make_dataset(count=ITEMS, size=(320, 240), name="costs")
    normalize = {"normalize": {"mean": [0, 0, 0], "std": [1, 1, 1]}}
    stages = ["fetch", "decode_image", {"resize": {"size": [32, 32]}}, normalize]
    daemon = make_daemon(pipelines=[write_pipeline(data, stages=stages)])
    rank = start_rank(daemon, job="run")
    read_epochs(rank, 3)

    found = stages_of(daemon)
    fetch, process = found["fetch"], found["decode_image + resize + normalize"]
    epoch_bytes = sum(path.stat().st_size for path in data.files)
    assert fetch["bytes"] >= 3 * epoch_bytes
    assert fetch["bytes"] / fetch["tasks"] == pytest.approx(epoch_bytes / ITEMS, rel=0.2)
    assert process["bytes"] is None
    assert fetch["failures_by_code"] == process["failures_by_code"] == {}
    assert fetch["ops"] == []
    decode, rest = process["ops"]
    assert (decode["field"], decode["ops"]) == ("image", "decode_image")
    assert (rest["field"], rest["ops"]) == ("image", "resize + normalize")
    assert decode["rows"] == rest["rows"]
    # One in 64, counted by each worker for itself, from its first row on.
    assert process["tasks"] // 64 <= rest["rows"] <= process["tasks"] // 64 + 16
    assert decode["spent_s"] > 0 and rest["spent_s"] > 0
    assert "image: decode_image" in daemon.ctl("get", "stages").stdout


def test_failures_are_counted_by_their_code(
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    make_daemon: Callable[..., Any],
    start_rank: Callable[..., Rank],
) -> None:
    data = make_dataset(count=ITEMS, name="broken")
    data.files[5].write_text("no image\n")
    daemon = make_daemon(pipelines=[write_pipeline(data, on_error={"decode": "replace"})])
    rank = start_rank(daemon, job="run")
    rank.rest_of_epoch()
    [process] = [stage for name, stage in stages_of(daemon).items() if name != "fetch"]
    assert process["failures_by_code"] == {"DATA_LOSS": process["failures"]}
    assert process["failures"] >= 1

# SPDX-License-Identifier: Apache-2.0
"""What spdlctl tells programs: -o json of every kind of command, and rates."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest

ITEMS, BATCH = 24, 4


@pytest.fixture
def file(write_pipeline: Callable[..., pathlib.Path], dataset: Any) -> pathlib.Path:
    return write_pipeline(dataset)


@pytest.fixture
def pipeline(file: pathlib.Path) -> pathlib.Path:
    return file


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_plan_is_explained_in_fields(daemon: Any, file: pathlib.Path) -> None:
    plan = daemon.ctl_json("explain", "-f", file)
    assert (plan["pipeline"], plan["items"], plan["classes"]) == ("images", ITEMS, 3)
    assert plan["order"] == {
        "shuffle": "global",
        "block": None,
        "interleave": None,
        "bucket": None,
        "repeat": None,
        "adjacent": False,
    }
    fetch, process = plan["tasks"]
    assert (fetch["stages"], fetch["pool"]) == ("fetch", "io")
    assert (process["stages"], process["pool"]) == ("decode_image + resize", "cpu")
    assert process["fields"] == [{"field": "image", "stages": "decode_image + resize"}]
    assert process["concurrency"] == daemon.ctl_json("status")["cpu_threads"]
    assert plan["image"] == {"layout": "NCHW", "normalized": False, "resamples": 1}
    batch = plan["batch"]
    assert batch["rows"] == BATCH
    assert batch["slot_bytes"] >= BATCH * 3 * 32 * 32
    image, label = batch["tensors"]
    assert (image["name"], image["dtype"], image["shape"]) == ("image", "uint8", [3, 32, 32])
    assert (label["name"], label["dtype"], label["shape"]) == ("label", "int64", [])
    assert plan["steps_per_epoch"] == ITEMS // BATCH
    arenas = plan["arenas"]
    assert arenas["slots"] > arenas["credits"] > 1
    assert arenas["consumer_bytes"] >= arenas["slots"] * batch["slot_bytes"]
    assert arenas["needed_bytes"] == arenas["consumer_bytes"] * plan["num_shards"]
    assert arenas["fits"] and arenas["missing_bytes"] == 0
    assert plan["cache"] is None


def test_a_plan_says_what_its_cache_would_do(
    daemon: Any, write_pipeline: Callable[..., pathlib.Path], dataset: Any
) -> None:
    file = write_pipeline(dataset, "cached", cache={"size": "16MiB"})
    cache = daemon.ctl_json("explain", "-f", file)["cache"]
    assert (cache["form"], cache["where"], cache["limit_bytes"]) == ("decoded", "ram", 16 << 20)
    assert cache["held_items"] == ITEMS
    assert cache["item_bytes"] >= 64 * 48 * 3
    assert cache["used"] == (cache["why_not"] == "")


def test_consume_tells_its_figures(daemon: Any) -> None:
    figures = daemon.ctl_json("consume", "images", "--job", "run", "--batches", "3")
    told = {"job": "run", "shard": 0, "num_shards": 1, "epochs": 0, "batches": 3, "rows": 3 * BATCH}
    assert {name: figures[name] for name in told} == told
    assert figures["bytes"] == 3 * BATCH * (3 * 32 * 32 + 8)
    assert figures["invalid_rows"] == figures["reconnects"] == 0
    assert figures["rows_per_s"] == pytest.approx(figures["rows"] / figures["took_s"])
    assert figures["bytes_per_s"] == pytest.approx(figures["bytes"] / figures["took_s"])
    assert not figures["interrupted"] and not figures["job_ended"]
    # It goes on there.
    args = ("consume", "images", "--batches", "1", "--digest", "--cursor", figures["cursor"])
    assert daemon.ctl(*args).stdout.split()[:2] == ["0", "3"]


def test_digests_come_as_a_line_of_json_each(daemon: Any) -> None:
    for options in (["--digest"], ["--digest", "--per-row"]):
        command = ("consume", "images", "--batches", "2", *options)
        text = daemon.ctl(*command).stdout
        told = lines(daemon.ctl(*command, "-o", "json").stdout)
        assert "".join(" ".join(map(str, line.values())) + "\n" for line in told) == text
        assert {"epoch", "step", "shard", "digest"} < set(told[0])


def test_what_is_deleted_is_told(daemon: Any) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images")
    assert daemon.ctl_json("delete", "job", "run") == {
        "job": "run",
        "pipeline": "images",
        "deleted": True,
        "had_ended": False,
    }
    deleted = daemon.ctl_json("delete", "pipeline", "images")
    assert deleted == {"pipeline": "images", "deleted": True}
    assert daemon.ctl_json("get", "pipelines") == []


@pytest.fixture
def reader(daemon: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Reads job 'run' on and on."""
    process = subprocess.Popen(
        [
            daemon_module.build_dir() / "bin/spdlctl",
            *("--address", daemon.address, "consume", "images", "--job", "run"),
            *("--epochs", "100000000"),
        ],
        stdout=subprocess.DEVNULL,
    )
    yield process
    process.kill()
    process.wait()


def test_rates_are_there_without_a_wait_for_them(
    daemon: Any, reader: subprocess.Popen[bytes], wait_until: Callable[..., Any]
) -> None:
    wait_until(
        lambda: any((job["rows_per_s"] or 0) > 0 for job in daemon.ctl_json("get", "jobs")),
        "a rate",
    )
    (job,) = daemon.ctl_json("get", "jobs")
    assert job["rows"] > 0
    (session,) = daemon.ctl_json("get", "sessions")
    assert session["rows_per_s"] > 0
    stages = daemon.ctl_json("get", "stages")
    for stage in stages:
        assert stage["rows_per_s"] > 0
        assert 0 <= stage["busy_share"] <= 1
        assert stage["served"] == pytest.approx(stage["busy_share"] * stage["concurrency"])
    status = daemon.ctl_json("status")
    assert status["rows_per_s"] == pytest.approx(BATCH * status["batches_per_s"])
    assert status["rows_per_s"] > 0
    assert "ROWS/S" in daemon.ctl("get", "jobs").stdout
    lately = {what: of for what, of in status["workers_lately"].items() if what != "core_s"}
    assert lately["rows_s"] > 0
    assert sum(lately.values()) > lately["rows_s"], "they are idle, too"
    assert "at work" in daemon.ctl("status").stdout

    reader.kill()
    (ended,) = wait_until(lambda: daemon.ctl_json("get", "jobs", "--ended"), "the job's end")
    assert ended["rows"] >= job["rows"]
    assert ended["rows_per_s"] is None
    # The daemon as a whole forgets it, second by second.
    wait_until(lambda: daemon.ctl_json("status")["rows_per_s"] == 0, "a rate of 0")

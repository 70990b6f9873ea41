# SPDX-License-Identifier: Apache-2.0
"""Values that are changed while they are in force, by `spdlctl tune` and by SIGHUP."""

from __future__ import annotations

import json
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank

ITEMS, BATCH = 96, 4
STEPS = ITEMS // BATCH
# Each is changed in both directions.
OF_JOB = {
    "prefetch": ("12", "2"),
    "fetch.concurrency": ("64", "1"),
    "process.concurrency": ("2", "1"),
    "weight": ("4", "0.5"),
    "cpus": ("1", "all"),
    "memory": ("64.0 MiB", "all"),
}
OF_DAEMON = {
    "executor.cpu_threads": ("1", "2"),
    "executor.io_threads": ("300", "3"),
    "cache.ram": ("64.0 MiB", "1.0 MiB"),
    "decoder.index": ("32.0 MiB", "1.0 MiB"),
    "arena.budget": ("512.0 MiB", "64.0 MiB"),
}


@pytest.fixture
def dataset(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=ITEMS)


@pytest.fixture
def pipeline(dataset: Any, write_pipeline: Callable[..., Any]) -> pathlib.Path:
    # Small batches would be copied when they are handed out, and hold nothing.
    large = ["fetch", "decode_image", {"resize": {"size": [128, 128]}}]
    return write_pipeline(dataset, stages=large, batch={"size": BATCH})


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], pipeline: pathlib.Path) -> Any:
    return make_daemon(pipelines=[pipeline], settings={"executor": {"cpu_threads": 2}})


def now(daemon: Any, target: str, key: str) -> str:
    [found] = [each for each in daemon.ctl_json("tune", target) if each["key"] == key]
    return found["now"]


def digests(rank: Rank, steps: int) -> list[dict[str, Any]]:
    return [rank.do("digest") for _ in range(steps)]


def test_values_change_under_a_rank_that_reads_what_it_would_have_read(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    quiet = start_rank(daemon, job="quiet")
    expected = digests(quiet, 2 * STEPS)
    quiet.close()
    rank = start_rank(daemon, job="run")
    read = digests(rank, 2)
    for target, values in (("run", OF_JOB), ("daemon", OF_DAEMON)):
        for key, both in values.items():
            for text in both:
                daemon.ctl("tune", target, f"{key}={text}")
                assert now(daemon, target, key) == text
                read += digests(rank, 1)
            daemon.ctl("tune", target, "--reset", key)
    assert read + digests(rank, 2 * STEPS - len(read)) == expected


def test_what_was_tuned_is_kept_over_a_restart(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, job="run")
    rank.next()
    daemon.ctl("tune", "run", "prefetch=9", "fetch.concurrency=50")
    daemon.ctl("tune", "daemon", "executor.io_threads=77")
    daemon.kill()
    daemon.start()
    rank.take(STEPS - 1)
    assert now(daemon, "run", "prefetch") == "9"
    assert now(daemon, "daemon", "executor.io_threads") == "77"
    assert rank.do("stats")["credits"] == 9
    [stage] = [stage for stage in daemon.ctl_json("get", "stages") if stage["stage"] == "fetch"]
    assert stage["concurrency"] == 50
    assert "tuned by uid" in daemon.log()


def test_a_rank_that_holds_all_batches_gets_more_once_prefetch_is_raised(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, job="run", prefetch=2)
    rank.take(2)
    daemon.ctl("tune", "run", "prefetch=5")
    rank.take(6)  # batches that were begun before count by the old number
    assert rank.do("stats")["credits"] == 5
    for _ in range(4):
        assert "error" not in rank.do("next", hold=True)


def test_a_rank_that_holds_all_batches_is_told_once_prefetch_is_lowered(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, job="run", prefetch=8)
    rank.take(2)
    daemon.ctl("tune", "run", "prefetch=2")
    rank.take(12)
    assert rank.do("stats")["credits"] == 2
    held = [rank.do("next", hold=True) for _ in range(3)]
    assert "error" not in held[1]
    assert held[2]["error"] == "LeaseError"


def test_a_changed_configuration_takes_effect_on_sighup(
    daemon: Any, wait_until: Callable[..., Any]
) -> None:
    daemon.ctl("tune", "daemon", "cache.ram=16MiB")
    config = json.loads(daemon.config_file.read_text())
    config["executor"]["io_threads"] = 99
    config["cache"] = {"ram": "32MiB"}
    daemon.config_file.write_text(json.dumps(config))
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: now(daemon, "daemon", "executor.io_threads") == "99", "the reload")
    assert daemon.ctl_json("status")["io_threads"] == 99
    assert now(daemon, "daemon", "cache.ram") == "16.0 MiB", "an admin's word counts"
    daemon.ctl("tune", "daemon", "--reset", "all")
    assert now(daemon, "daemon", "cache.ram") == "32.0 MiB"


def test_a_configuration_that_is_wrong_changes_nothing(
    daemon: Any, wait_until: Callable[..., Any]
) -> None:
    before = daemon.ctl_json("tune", "daemon")
    daemon.config_file.write_text('{"executor": {"io_threads": 0}}')
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: "not reloaded" in daemon.log(), "the refusal")
    assert daemon.ctl_json("tune", "daemon") == before


@pytest.mark.parametrize(
    ("target", "said", "told"),
    [
        (
            "daemon",
            "executor.io_threads=0",
            "executor.io_threads cannot be '0': it may be 1 to 1024",
        ),
        ("daemon", "executor.cpu_threads=100000", "executor.cpu_threads cannot be '100000'"),
        ("daemon", "arena.budget=many", "it may be a size such as 2GiB, or a share of the memory"),
        ("daemon", "state_dir=/tmp", "there is no value 'state_dir' of the daemon"),
        ("nobody", "prefetch=8", "there is no job 'nobody'"),
    ],
)
def test_a_value_that_cannot_be_is_refused(daemon: Any, target: str, said: str, told: str) -> None:
    refused = daemon.ctl("tune", target, said, check=False)
    assert refused.returncode != 0
    assert told in refused.stderr

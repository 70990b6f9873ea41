# SPDX-License-Identifier: Apache-2.0
"""Jobs that need the same batches: made once, and no job is the worse for the other."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank, in_lockstep, indices

ITEMS, BATCH = 96, 2
STEPS = ITEMS // BATCH


@pytest.fixture
def dataset(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=ITEMS, texture=True)


@pytest.fixture
def pipeline(write_large_pipeline: Callable[..., pathlib.Path], dataset: Any) -> pathlib.Path:
    return write_large_pipeline(dataset, batch={"size": BATCH})


@pytest.fixture
def pair(daemon: Any, start_rank: Callable[..., Rank]) -> tuple[Rank, Rank]:
    """Two jobs that share, each with its first batch in hand."""
    return start_pair(daemon, start_rank)


def start_pair(daemon: Any, start_rank: Callable[..., Rank], **options: Any) -> tuple[Rank, Rank]:
    one = start_rank(daemon, job="one")
    other = start_rank(daemon, job="other", **options)
    in_lockstep((one, other), 1)
    return one, other


def seen(batches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(batch["step"], batch["indices"], batch["sum"]) for batch in batches]


def shared_rows(daemon: Any) -> int:
    return sum(job["shared_rows"] for job in daemon.ctl_json("get", "jobs"))


def expected_of(daemon: Any, start_rank: Callable[..., Rank], **options: Any) -> list[Any]:
    """An epoch as a job has it that nobody shares with."""
    alone = start_rank(daemon, job="reference", **options)
    batches = seen(alone.rest_of_epoch())
    alone.do("close")
    return batches


def test_two_jobs_at_about_the_same_place_share_what_they_read(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    expected = expected_of(daemon, start_rank)
    one = start_rank(daemon, job="one")
    begun = one.take(3)
    other = start_rank(daemon, job="other")
    late = other.take(3)  # what the first has read already is made for it alone
    rest = in_lockstep((one, other), STEPS - 3)
    assert seen(begun + rest[0]) == expected
    assert seen(late + rest[1]) == expected
    assert shared_rows(daemon) >= (STEPS - 16) * BATCH
    gained = {job["job"]: job for job in daemon.ctl_json("get", "jobs")}
    assert sum(job["saved_cpu_s"] for job in gained.values()) > 0


@pytest.mark.parametrize(
    "different", [{"seed": 8}, {"batch_size": 4}, {"num_shards": 2, "shard": 0}]
)
def test_jobs_that_need_other_rows_share_nothing(
    daemon: Any, start_rank: Callable[..., Rank], different: dict[str, int]
) -> None:
    alone = "num_shards" not in different
    expected = expected_of(daemon, start_rank, **different) if alone else None
    one, other = start_pair(daemon, start_rank, **different)
    rows = in_lockstep((one, other), 10)
    if expected is not None:
        assert seen(rows[1]) == expected[1:11]
    assert seen(rows[0])[0][0] == 1
    assert shared_rows(daemon) == 0


def test_jobs_of_one_pipelines_variants_share_only_with_the_same_variables(
    make_daemon: Callable[..., Any],
    write_large_pipeline: Callable[..., pathlib.Path],
    dataset: Any,
    start_rank: Callable[..., Rank],
) -> None:
    stages = ["fetch", "decode_image", {"resize": {"size": ["${size}", "${size}"]}}]
    path = write_large_pipeline(dataset, vars={"size": 128}, stages=stages, batch={"size": BATCH})
    daemon = make_daemon(pipelines=[path])
    one, other = start_pair(daemon, start_rank, vars={"size": 96})
    in_lockstep((one, other), 10)
    assert shared_rows(daemon) == 0
    third = start_rank(daemon, job="third", vars={"size": 96})
    third.take(11)
    in_lockstep((other, third), 10)
    assert shared_rows(daemon) > 0


@pytest.mark.parametrize("stopped", [0, 1])  # the first makes the batches
def test_one_that_stops_reading_does_not_hold_the_other_up_for_good(
    daemon: Any, start_rank: Callable[..., Rank], pair: tuple[Rank, Rank], stopped: int
) -> None:
    expected = expected_of(daemon, start_rank)
    pair[stopped].signal(signal.SIGSTOP)
    assert seen(pair[1 - stopped].take(STEPS - 1)) == expected[1:]
    pair[stopped].signal(signal.SIGCONT)
    assert seen(pair[stopped].take(STEPS - 1)) == expected[1:]


@pytest.mark.parametrize("victim", [0, 1])
def test_one_that_is_killed_leaves_the_other_undisturbed(
    daemon: Any, start_rank: Callable[..., Rank], pair: tuple[Rank, Rank], victim: int
) -> None:
    expected = expected_of(daemon, start_rank)
    pair[victim].next(hold=True)
    pair[victim].kill()
    assert seen(pair[1 - victim].take(STEPS - 1)) == expected[1:]


@pytest.mark.parametrize("victim", [0, 1])
def test_one_that_is_sought_leaves_the_other_undisturbed(
    daemon: Any, start_rank: Callable[..., Rank], pair: tuple[Rank, Rank], victim: int
) -> None:
    expected = expected_of(daemon, start_rank)
    name = ("one", "other")[victim]
    daemon.ctl("job", "seek", name, "--epoch", "2", "--step", "7")
    assert seen(pair[1 - victim].take(STEPS - 1)) == expected[1:]
    # What was on its way to it comes first.
    theirs = [pair[victim].next() for _ in range(20)]
    sought = [batch for batch in theirs if batch["epoch"] == 2]
    assert [batch["step"] for batch in sought] == list(range(7, 7 + len(sought)))
    assert seen(theirs[: 20 - len(sought)]) == expected[1 : 21 - len(sought)]


@pytest.mark.parametrize("victim", [0, 1])
def test_one_that_is_resized_leaves_the_other_undisturbed(
    daemon: Any, start_rank: Callable[..., Rank], pair: tuple[Rank, Rank], victim: int
) -> None:
    expected = expected_of(daemon, start_rank)
    name = ("one", "other")[victim]
    daemon.ctl("job", "resize", name, "--shards", "2")
    assert seen(pair[1 - victim].take(STEPS - 1)) == expected[1:]
    second = start_rank(daemon, job=name, shard=1, num_shards=2)
    theirs = pair[victim].rest_of_epoch() + second.rest_of_epoch()
    first = expected[0][1]
    rows = first + indices(theirs)
    assert len(set(rows)) == len(rows)
    # What does not fill a step of two shards is left out.
    assert len(rows) >= ITEMS - BATCH


@pytest.mark.parametrize("victim", [0, 1])
def test_one_that_is_deleted_leaves_the_other_undisturbed(
    daemon: Any, start_rank: Callable[..., Rank], pair: tuple[Rank, Rank], victim: int
) -> None:
    expected = expected_of(daemon, start_rank)
    daemon.ctl("delete", "job", ("one", "other")[victim])
    assert seen(pair[1 - victim].take(STEPS - 1)) == expected[1:]


@pytest.mark.parametrize("victim", [0, 1])
def test_one_that_is_swapped_leaves_the_other_undisturbed(
    daemon: Any,
    start_rank: Callable[..., Rank],
    pair: tuple[Rank, Rank],
    pipeline: pathlib.Path,
    victim: int,
) -> None:
    expected = expected_of(daemon, start_rank)
    changed = pipeline.with_name("changed.yaml")
    changed.write_text(
        pipeline.read_text().replace(
            '"decode_image",', '"decode_image", {"center_crop": {"size": [32, 32]}},'
        )
    )
    name = ("one", "other")[victim]
    daemon.ctl("apply", "-f", changed, "--job", name, "--at", "step:0/20")
    theirs, ours = in_lockstep((pair[victim], pair[1 - victim]), STEPS - 1)
    assert seen(ours) == expected[1:]
    assert seen(theirs[:19]) == expected[1:20]
    changed_ones = seen(theirs[19:])
    assert [batch[:2] for batch in changed_ones] == [batch[:2] for batch in expected[20:]]
    assert all(
        batch[2] != before[2] for batch, before in zip(changed_ones, expected[20:], strict=True)
    )
    (phase,) = daemon.ctl_json("get", "jobs", ("other", "one")[victim])["phases"]
    assert phase["pipeline_version"] == 1


def test_each_job_has_its_own_budget_for_what_is_replaced(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write_large_pipeline: Callable[..., pathlib.Path],
    start_rank: Callable[..., Rank],
) -> None:
    broken = make_dataset(count=ITEMS, name="broken-in-sharing")
    for path in broken.files[::12]:
        path.write_bytes(b"no image")
    losses = len(broken.files[::12])
    pipeline = write_large_pipeline(broken, batch={"size": BATCH})
    daemon = make_daemon(pipelines=[pipeline])
    one, other = start_pair(daemon, start_rank)
    in_lockstep((one, other), STEPS - 1)
    # Also of batches that were made before it joined.
    jobs = {job["job"]: job["replaced"] for job in daemon.ctl_json("get", "jobs")}
    assert jobs == {"one": losses, "other": losses}
    failed = {failure["job"] for failure in daemon.ctl_json("get", "failures")}
    assert failed == {"one", "other"}

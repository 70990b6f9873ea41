# SPDX-License-Identifier: Apache-2.0
"""Jobs that a launcher declares over gRPC, and ranks that attach to them by name."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank, indices

ITEMS, BATCH = 48, 2
ATTACH_BY_NAME = {"job": "run", "shard": -1}


@pytest.fixture
def pipeline(make_dataset: Callable[..., Any], write_pipeline: Callable[..., Any]) -> pathlib.Path:
    return write_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH, "last": "keep"})


def create(daemon: Any, *more: str, shards: int = 2) -> Any:
    return daemon.ctl_json(
        "job", "create", "run", "--pipeline", "images", "--shards", str(shards), *more
    )


def test_ranks_that_attach_by_name_get_the_jobs_shards(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    create(daemon, "--epochs", "manual")
    ranks = [start_rank(daemon, **ATTACH_BY_NAME) for _ in range(2)]
    places = [rank.do("place") for rank in ranks]
    assert sorted(place["shard"] for place in places) == [0, 1]
    assert {place["num_shards"] for place in places} == {2}
    rows = [indices(rank.rest_of_epoch()) for rank in ranks]
    assert sorted(rows[0] + rows[1]) == list(range(ITEMS))
    job = daemon.ctl_json("get", "jobs", "run")
    assert job["declared"]
    assert {shard["pid"] for shard in job["shards"]} == {rank.pid for rank in ranks}


def test_a_manual_epoch_begins_when_the_job_is_advanced(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    assert create(daemon, "--epochs", "manual")["open_epochs"] == 1
    ranks = [start_rank(daemon, **ATTACH_BY_NAME) for _ in range(2)]
    for rank in ranks:
        rank.rest_of_epoch()
        rank.ask("next")
    before = time.monotonic()
    assert not any(rank.answered() for rank in ranks)
    assert daemon.ctl_json("job", "advance", "run")["open_epochs"] == 2
    for rank in ranks:
        batch = rank.answer()
        assert (batch["epoch"], batch["step"]) == (1, 0)
        assert batch["at"] > before, "the batch came before its epoch was opened"


def test_advancing_to_an_epoch_may_be_repeated(daemon: Any) -> None:
    create(daemon, "--epochs", "manual", "--max-epochs", "3")
    for _ in range(2):
        assert daemon.ctl_json("job", "advance", "run", "--to", "2")["open_epochs"] == 3
    behind = daemon.ctl("job", "advance", "run", "--to", "0", check=False)
    assert behind.returncode == 1
    assert "epoch 0 of job 'run' lies behind: epoch 2 is open" in behind.stderr
    over = daemon.ctl("job", "advance", "run", check=False)
    assert over.returncode == 1
    assert (
        "job 'run' ends with epoch 2, as it was created, and cannot be made longer" in over.stderr
    )
    assert "create another one with more (--max-epochs)" in over.stderr
    assert (
        "ends with epoch 2" in daemon.ctl("job", "seek", "run", "--epoch", "3", check=False).stderr
    )


def test_a_job_ends_after_its_last_epoch(daemon: Any, start_rank: Callable[..., Rank]) -> None:
    create(daemon, "--max-epochs", "2", shards=1)
    rank = start_rank(daemon, **ATTACH_BY_NAME)
    for epoch in range(2):
        batches = rank.rest_of_epoch()
        assert {batch["epoch"] for batch in batches} == {epoch}
        assert sorted(indices(batches)) == list(range(ITEMS))
    assert rank.rest_of_epoch() == []


def test_a_consumer_that_asks_for_more_is_told_that_the_job_has_ended(daemon: Any) -> None:
    create(daemon, "--max-epochs", "2", shards=1)
    read = ("consume", "images", "--job", "run", "--digest")
    assert daemon.ctl(*read, "--epochs", "2").stderr == ""
    for more in (("--epochs", "3"), ("--epochs", "1", "--start", "ledger")):
        assert daemon.ctl(*read, *more).stderr == "job 'run' has ended: epoch 1 was its last\n"


def test_a_job_with_automatic_epochs_cannot_be_advanced(daemon: Any) -> None:
    create(daemon)
    refused = daemon.ctl("job", "advance", "run", check=False)
    assert refused.returncode == 1
    assert "goes on to the next epoch by itself" in refused.stderr


@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2)])
def test_every_row_comes_once_in_an_epoch_that_is_resized(
    daemon: Any, start_rank: Callable[..., Rank], first: int, second: int
) -> None:
    create(daemon, "--epochs", "manual", shards=first)
    ranks = [start_rank(daemon, **ATTACH_BY_NAME, prefetch=2) for _ in range(first)]
    rows = [index for rank in ranks for index in indices(rank.take(2))]
    assert daemon.ctl_json("job", "resize", "run", "--shards", str(second))["num_shards"] == second
    ranks += [start_rank(daemon, **ATTACH_BY_NAME) for _ in range(second - first)]
    leavers = []
    for rank in ranks:
        while "end" not in (batch := rank.do("next")):
            if "error" in batch:
                leavers.append(batch)
                break
            rows += batch["indices"]
    assert sorted(rows) == list(range(ITEMS))
    assert [batch["error"] for batch in leavers] == ["PipelineError"] * max(0, first - second)
    for batch in leavers:
        assert f"the job was resized to {second} shards" in batch["message"]


def test_a_resized_job_keeps_its_size_in_the_next_epoch(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    create(daemon, "--epochs", "manual")
    daemon.ctl("job", "resize", "run", "--shards", "3")
    daemon.ctl("job", "advance", "run")
    ranks = [start_rank(daemon, **ATTACH_BY_NAME) for _ in range(3)]
    for _ in range(2):
        rows = [index for rank in ranks for index in indices(rank.rest_of_epoch())]
        assert sorted(rows) == list(range(ITEMS))


def test_a_rank_that_asks_for_statistics_still_gets_all_steps_before_a_resize_ends_it(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    create(daemon)
    ranks = [start_rank(daemon, **ATTACH_BY_NAME, prefetch=4) for _ in range(2)]
    rows = [index for rank in ranks for index in indices(rank.take(2))]
    daemon.ctl("job", "resize", "run", "--shards", "1")
    told = ranks[1].do("stats")  # between what it was sent and its end
    assert "error" not in told or "resized to 1 shard," in told["message"]
    while "error" not in (batch := ranks[1].do("next")):
        rows += indices([batch])
    assert "resized to 1 shard," in batch["message"]
    rows += indices(ranks[0].rest_of_epoch())
    assert sorted(rows) == list(range(ITEMS))


def test_a_resize_and_a_skip_say_from_which_step_on_they_hold(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    create(daemon)
    ranks = [start_rank(daemon, **ATTACH_BY_NAME, prefetch=2) for _ in range(2)]
    for rank in ranks:
        rank.take(2)
    said = daemon.ctl("job", "seek", "run", "--skip", "1").stdout
    skipped = daemon.ctl_json("get", "jobs", "run")["dealt_from"]
    assert skipped["epoch"] == 0
    at = f"epoch 0, step {skipped['step']}"
    assert said.startswith(f"job 'run' leaves out 1 step of rows from {at} on\n")
    for rank in ranks:
        while rank.next()["step"] < skipped["step"]:
            pass
    said = daemon.ctl("job", "resize", "run", "--shards", "1").stdout
    place = daemon.ctl_json("get", "jobs", "run")["dealt_from"]
    resized = (place["epoch"], place["step"])
    assert resized > (0, skipped["step"])
    at = f"epoch {resized[0]}, step {resized[1]}"
    assert said.startswith(f"job 'run' is dealt out to 1 shard from {at} on\n")
    assert (
        f"\nbatches    {BATCH} rows on 1 shard, dealt out so from {resized[0]}/{resized[1]} on\n"
        in said
    )
    read = [(0, 0)]
    while "error" not in (batch := ranks[1].do("next")):
        if "end" not in batch:
            read.append((batch["epoch"], batch["step"]))
    assert max(read) < resized


def test_a_resize_to_too_many_shards_names_the_most_that_there_can_be(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path
) -> None:
    dropping = pipeline.with_name("dropping.yaml")
    dropping.write_text(pipeline.read_text().replace('"keep"', '"drop"'))
    daemon = make_daemon(pipelines=[dropping])
    create(daemon)
    refused = daemon.ctl("job", "resize", "run", "--shards", "600", check=False)
    assert refused.returncode == 1
    assert (
        "48 items make no step of 600 shards with batches of 2: job 'run' can have at most "
        "24 shards, or more with 'batch: {last: pad}'"
    ) in refused.stderr
    assert daemon.ctl_json("job", "resize", "run", "--shards", "24")["num_shards"] == 24


def test_a_rank_whose_shard_is_no_more_is_told_so_when_it_comes_again(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    create(daemon)
    ranks = [start_rank(daemon, **ATTACH_BY_NAME, prefetch=2) for _ in range(2)]
    for rank in ranks:
        rank.take(1)
    daemon.ctl("job", "resize", "run", "--shards", "1")
    while "error" not in (batch := ranks[1].do("next")):
        assert "end" not in batch, "the epoch ended before the word came"
    assert "the job was resized to 1 shard, and there is no shard 1 any more" in batch["message"]
    # It comes back to the turn of the resize, where its shard has nothing more to read.
    again = ranks[1].do("next")
    assert again["error"] == "PipelineError"
    assert "the job was resized to 1 shard, and there is no shard 1 any more" in again["message"]


def test_a_job_that_is_sought_goes_on_there_on_every_shard(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    create(daemon)
    ranks = [start_rank(daemon, **ATTACH_BY_NAME, prefetch=2) for _ in range(2)]
    first = [rank.take(6) for rank in ranks]
    daemon.ctl("job", "seek", "run", "--epoch", "0", "--step", "1")
    under_way = [0, 0]
    for number, (rank, before) in enumerate(zip(ranks, first, strict=True)):
        # What any shard had begun before the word came is read first, by all of them.
        while (batch := rank.next())["step"] != 1:
            assert batch["step"] == 6 + under_way[number]
            under_way[number] += 1
        again = [batch, *rank.take(4)]
        assert [b["step"] for b in again] == [1, 2, 3, 4, 5]
        assert indices(again) == indices(before[1:])
    assert under_way[0] == under_way[1]


def test_a_job_cannot_be_sought_behind_an_epochs_end(daemon: Any) -> None:
    create(daemon)
    refused = daemon.ctl("job", "seek", "run", "--epoch", "0", "--step", "13", check=False)
    assert refused.returncode == 1
    assert "epoch 0 of job 'run' has 12 steps; there is no step 13" in refused.stderr


def test_a_consumer_too_many_is_refused(daemon: Any, start_rank: Callable[..., Rank]) -> None:
    create(daemon)
    ranks = [start_rank(daemon, **ATTACH_BY_NAME) for _ in range(2)]
    for rank in ranks:
        rank.take(1)
    refused = start_rank(daemon, **ATTACH_BY_NAME).do("next")
    assert refused["error"] == "PipelineError"
    assert "job 'run' has 2 shards, and each has its consumer" in refused["message"]
    assert "resize the job, or let one detach" in refused["message"]
    # Whoever detaches makes room.
    ranks[0].do("close")
    replacement = start_rank(daemon, **ATTACH_BY_NAME)
    assert replacement.do("place")["shard"] == 0


def test_a_rank_of_another_world_size_is_refused(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    create(daemon)
    refused = start_rank(daemon, job="run", rank=0, world_size=4).do("next")
    assert (
        "job 'run' has num_shards 2, and this consumer asks for num_shards 4" in refused["message"]
    )


def test_a_deleted_job_tells_its_ranks(daemon: Any, start_rank: Callable[..., Rank]) -> None:
    create(daemon)
    rank = start_rank(daemon, **ATTACH_BY_NAME)
    rank.take(1)
    daemon.ctl("delete", "job", "run")
    while "error" not in (batch := rank.do("next")):
        assert "end" not in batch, "the epoch ended before the word came"
    assert "job 'run' was deleted by uid" in batch["message"]
    assert daemon.ctl_json("get", "jobs") == []


def test_a_job_is_created_once(daemon: Any) -> None:
    create(daemon)
    again = daemon.ctl("job", "create", "run", "--pipeline", "images", check=False)
    assert again.returncode == 1
    assert "job 'run' on pipeline 'images' is there already" in again.stderr


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_declared_jobs_and_applied_pipelines_survive_the_daemon(
    make_daemon: Callable[..., Any],
    pipeline: pathlib.Path,
    start_rank: Callable[..., Rank],
    ends: str,
) -> None:
    daemon = make_daemon()
    applied = daemon.ctl_json("apply", "-f", pipeline)
    create(daemon, "--epochs", "manual", "--seed", "11", "--batch-size", "3")
    daemon.ctl("job", "resize", "run", "--shards", "3")
    daemon.ctl("job", "advance", "run")
    before = daemon.ctl_json("get", "jobs", "run")
    getattr(daemon, ends)()
    daemon.start()
    assert daemon.ctl_json("get", "jobs", "run") == before
    after = daemon.ctl_json("get", "pipelines", "images")
    assert {**after, "jobs": 0} == applied
    assert after["jobs"] == 1
    ranks = [start_rank(daemon, **ATTACH_BY_NAME) for _ in range(3)]
    for _ in range(2):
        rows = [index for rank in ranks for index in indices(rank.rest_of_epoch())]
        assert sorted(rows) == list(range(ITEMS))


def test_a_deleted_pipeline_does_not_come_back_with_the_daemon(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path
) -> None:
    daemon = make_daemon()
    daemon.ctl("apply", "-f", pipeline)
    create(daemon)
    refused = daemon.ctl("delete", "pipeline", "images", check=False)
    assert refused.returncode == 1
    assert "is run by 1 job: delete it or let it end first" in refused.stderr
    daemon.ctl("delete", "job", "run")
    daemon.ctl("delete", "pipeline", "images")
    daemon.restart()
    assert daemon.ctl_json("get", "pipelines") == []
    assert daemon.ctl_json("get", "jobs") == []
    again = daemon.ctl("delete", "pipeline", "images", check=False)
    assert "there is no pipeline 'images'; none has been applied yet" in again.stderr

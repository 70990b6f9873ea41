# SPDX-License-Identifier: Apache-2.0
"""A job goes on exactly where it was, under another world size or batch size, and after restarts."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import on_gpu
import pytest
from integration.ranks import Rank, group

ITEMS, BATCH = 1001, 4
SMALL = ["fetch", "decode_image", {"resize": {"size": [8, 8]}}]


@pytest.fixture
def pipeline(make_dataset: Callable[..., Any], write_pipeline: Callable[..., Any]) -> pathlib.Path:
    return write_pipeline(
        make_dataset(count=ITEMS, size=(16, 16)),
        stages=SMALL,
        batch={"size": BATCH, "last": "keep"},
    )


def valid(batch: dict[str, Any]) -> list[int]:
    rows = zip(batch["indices"], batch["valid"], strict=True)
    return [index for index, is_valid in rows if is_valid]


def in_order(per_rank: list[list[dict[str, Any]]]) -> list[int]:
    """The items in the order of the epoch; fails if the shards have not the same steps."""
    steps = [[batch["step"] for batch in batches] for batches in per_rank]
    assert all(one == steps[0] for one in steps), steps
    return [index for step in zip(*per_rank, strict=True) for one in step for index in valid(one)]


def read_up_to(rank: Rank, epoch: int, step: int) -> list[dict[str, Any]]:
    """All before that step of the epoch that the rank is in."""
    batches = rank.take(1)
    while (batches[-1]["epoch"], batches[-1]["step"] + 1) < (epoch, step):
        batches += rank.take(1)
    assert (batches[-1]["epoch"], batches[-1]["step"] + 1) == (epoch, step)
    return batches


def close(ranks: list[Rank]) -> None:
    for rank in ranks:
        rank.do("close")
        rank.close()


def test_new_ranks_of_other_numbers_and_batch_sizes_read_the_same_order(
    daemon: Any, start_rank: Callable[..., Rank], whole_epoch: list[int]
) -> None:
    order: list[int] = []
    state: dict[str, Any] | None = None
    steps = 0
    for life, (size, batch_size, count) in enumerate([(4, 4, 9), (3, 6, 7), (8, 3, 11), (2, 4, 0)]):
        ranks = group(start_rank, daemon, size, job=f"life-{life}", batch_size=batch_size)
        if state is not None:
            for rank in ranks:
                rank.do("load", state=state)
        if count:
            taken = [rank.take(count) for rank in ranks]
            assert taken[0][0]["step"] == steps
            steps += count
        else:
            taken = [rank.rest_of_epoch() for rank in ranks]
        order += in_order(taken)
        state = ranks[0].do("state")["state"]
        assert all(rank.do("state")["state"] == state for rank in ranks)
        close(ranks)
    assert order == whole_epoch


@pytest.mark.parametrize("attached_first", [False, True])
def test_a_job_that_was_resumed_elsewhere_is_resized_live_without_loss(
    daemon: Any, start_rank: Callable[..., Rank], whole_epoch: list[int], attached_first: bool
) -> None:
    ranks = group(start_rank, daemon, 3, job="before")
    order = in_order([rank.take(5) for rank in ranks])
    state = ranks[0].do("state")["state"]
    close(ranks)
    ranks = group(start_rank, daemon, 2, batch_size=6)
    if attached_first:
        for rank in ranks:
            rank.do("place")
    for rank in ranks:
        rank.do("load", state=state)
    taken = [rank.take(4) for rank in ranks]
    order += in_order(taken)
    daemon.ctl("job", "resize", "run", "--shards", "3")
    ranks.append(start_rank(daemon, job="run", rank=2, world_size=3, batch_size=6))
    rest = [rank.rest_of_epoch() for rank in ranks]
    cut = rest[2][0]["step"]
    under_way = [[batch for batch in batches if batch["step"] < cut] for batches in rest[:2]]
    order += in_order(under_way)
    order += in_order([[batch for batch in batches if batch["step"] >= cut] for batches in rest])
    assert order == whole_epoch


def test_live_resizes_deal_out_every_item_once(
    daemon: Any, start_rank: Callable[..., Rank], whole_epoch: list[int]
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "4")
    ranks = group(start_rank, daemon, 4, rank=None, world_size=None, shard=-1, prefetch=2)
    rows: list[int] = []
    for rank in ranks:
        rows += [index for batch in rank.take(6) for index in valid(batch)]
    for size in (3, 8):
        daemon.ctl("job", "resize", "run", "--shards", str(size))
        for _ in range(size - len(ranks)):
            ranks.append(start_rank(daemon, job="run", shard=-1, prefetch=2))
        while len(ranks) > size:
            leaver = ranks.pop()
            while "error" not in (batch := leaver.do("next")):
                rows += valid(batch)
            assert f"resized to {size} shards" in batch["message"]
            leaver.close()
        for rank in ranks:
            rows += [index for batch in rank.take(5) for index in valid(batch)]
    rest = [rank.rest_of_epoch() for rank in ranks]
    rows += [index for batches in rest for batch in batches for index in valid(batch)]
    assert sorted(rows) == sorted(whole_epoch)
    assert len({batches[-1]["step"] for batches in rest}) == 1


@pytest.mark.parametrize("ends", ["kill", "stop"])
@pytest.mark.parametrize("declared", [False, True])
def test_a_restart_after_a_resize_loses_nothing(
    daemon: Any, start_rank: Callable[..., Rank], whole_epoch: list[int], declared: bool, ends: str
) -> None:
    if declared:
        daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "2")
    ranks = group(start_rank, daemon, 2, prefetch=2)
    rows = [index for rank in ranks for batch in rank.take(4) for index in valid(batch)]
    at = daemon.ctl_json("job", "resize", "run", "--shards", "3")["dealt_from"]
    # The third shard begins where a rank that was there has come to the resize.
    for rank in ranks:
        rows += [index for batch in read_up_to(rank, **at) for index in valid(batch)]
    ranks.append(start_rank(daemon, job="run", rank=2, world_size=3))
    rows += [index for rank in ranks for batch in rank.take(3) for index in valid(batch)]
    getattr(daemon, ends)()
    for rank in ranks:
        rank.ask("next")
    daemon.start()
    for rank in ranks:
        rows += valid(rank.answer())
    rest = [rank.rest_of_epoch() for rank in ranks]
    rows += [index for batches in rest for batch in batches for index in valid(batch)]
    assert sorted(rows) == sorted(whole_epoch)
    assert {batch[-1]["step"] for batch in rest} == {rest[0][-1]["step"]}
    assert daemon.ctl_json("get", "jobs", "run")["num_shards"] == 3
    # The next epoch is whole, too.
    again = in_order([rank.rest_of_epoch() for rank in ranks])
    assert sorted(again) == sorted(whole_epoch)


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_a_consumer_in_cpp_gets_each_batch_once_through_restarts(
    daemon: Any, ends: str, wait_until: Callable[..., Any]
) -> None:
    arguments = [
        *on_gpu.consume("images", "--job", "cpp", "--rank", "0", "--world-size", "1"),
        *("--digest", "--epochs", "3"),
    ]
    undisturbed = daemon.ctl(*arguments).stdout.splitlines()
    consumer = subprocess.Popen(
        [daemon_module.build_dir() / "bin/spdlctl", "--address", daemon.address, *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert consumer.stdout is not None
        lines = [consumer.stdout.readline().rstrip("\n") for _ in range(20)]
        os.kill(consumer.pid, signal.SIGSTOP)
        getattr(daemon, ends)()
        os.kill(consumer.pid, signal.SIGCONT)
        daemon.start()
        rest = consumer.stdout.read()  # not communicate(): it passes over what was read ahead
        consumer.wait(daemon_module.WATCHDOG_S)
    finally:
        consumer.kill()
        consumer.wait()
    assert consumer.returncode == 0
    assert lines + rest.splitlines() == undisturbed


def test_fresh_ranks_after_a_live_resize_all_begin_at_the_same_step(
    daemon: Any,
    start_rank: Callable[..., Rank],
    whole_epoch: list[int],
    wait_until: Callable[..., Any],
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "2")
    ranks = group(start_rank, daemon, 2)
    for rank in ranks:
        rank.take(5)
    daemon.ctl("job", "resize", "run", "--shards", "3")
    for rank in ranks:
        rank.kill()
    wait_until(lambda: daemon.ctl_json("get", "sessions") == [], "the sessions' ends")
    ranks = group(start_rank, daemon, 3)
    assert in_order([rank.rest_of_epoch() for rank in ranks]) == whole_epoch


def test_a_shard_that_a_resize_brought_begins_with_the_others_new_deal(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "1")
    first = start_rank(daemon, job="run", shard=-1, prefetch=2)
    first.take(5)
    daemon.ctl("job", "resize", "run", "--shards", "2")
    phase = first.rest_of_epoch()
    late = start_rank(daemon, job="run", shard=-1)
    batches = late.rest_of_epoch()
    assert batches[0]["step"] > 4
    assert batches[-1]["step"] == phase[-1]["step"]


def test_a_job_that_awaits_its_ranks_is_not_changed_until_they_are_back(
    daemon: Any, start_rank: Callable[..., Rank], whole_epoch: list[int]
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "2")
    ranks = group(start_rank, daemon, 2, prefetch=2)
    rows = [index for rank in ranks for batch in rank.take(3) for index in valid(batch)]
    for rank in ranks:
        os.kill(rank.pid, signal.SIGSTOP)
    daemon.restart()
    for change in (
        ("resize", "run", "--shards", "3"),
        ("seek", "run", "--epoch", "0"),
        ("seek", "run", "--skip", "2"),
    ):
        refused = daemon.ctl("job", *change, check=False)
        assert refused.returncode == 1
        assert "was read when the daemon stopped and has not come back yet" in refused.stderr
        assert "try again once it is attached, or in " in refused.stderr
    for rank in ranks:
        os.kill(rank.pid, signal.SIGCONT)
    for rank in ranks:  # what is held already comes first
        while daemon.ctl_json("get", "jobs", "run")["shards"][0].get("pid") is None:
            rows += valid(rank.next())
        rows += valid(rank.next())
    for rank in ranks:
        rows += [index for batch in rank.take(2) for index in valid(batch)]
    assert daemon.ctl_json("job", "resize", "run", "--shards", "3")["num_shards"] == 3
    ranks.append(start_rank(daemon, job="run", rank=2, world_size=3))
    for rank in ranks:
        rows += [index for batch in rank.rest_of_epoch() for index in valid(batch)]
    assert sorted(rows) == sorted(whole_epoch)


def test_a_wait_for_a_daemon_says_what_was_tried(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, timeout=1.0)
    rank.take(2)
    daemon.kill()
    while "error" not in (batch := rank.do("next")):
        pass
    assert batch["error"] == "ConnectionError"
    for words in ("tried to attach again to go on at step", "attempts in 1000 ms", "raise timeout"):
        assert words in batch["message"]


def test_steps_that_are_skipped_are_skipped_on_every_shard(
    daemon: Any, start_rank: Callable[..., Rank], whole_epoch: list[int]
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "2")
    ranks = group(start_rank, daemon, 2, prefetch=2)
    before = [rank.take(3) for rank in ranks]
    daemon.ctl("job", "seek", "run", "--skip", "10")
    rest = [rank.rest_of_epoch() for rank in ranks]
    order = in_order([one + two for one, two in zip(before, rest, strict=True)])
    missing = len(whole_epoch) - len(order)
    assert missing == 10 * 2 * BATCH
    begin = next(i for i, (a, b) in enumerate(zip(order, whole_epoch, strict=False)) if a != b)
    assert order == whole_epoch[:begin] + whole_epoch[begin + missing :]


@pytest.mark.parametrize("killed", ["", "killed while they read up to it"])
def test_a_seek_takes_all_ranks_elsewhere_behind_the_same_step(
    daemon: Any, start_rank: Callable[..., Rank], whole_epoch: list[int], killed: str
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "3")
    ranks = group(start_rank, daemon, 3, prefetch=4)
    before = [rank.take(count) for rank, count in zip(ranks, (6, 2, 4), strict=True)]
    daemon.ctl("job", "seek", "run", "--epoch", "2", "--step", "4")
    if killed:
        daemon.kill()
        daemon.start()
    for rank, batches in zip(ranks, before, strict=True):
        while (batch := rank.next())["epoch"] == 0:
            batches.append(batch)
        assert [(batch["epoch"], batch["step"]) for batch in (batch, rank.next())] == [
            (2, 4),
            (2, 5),
        ]
    order = in_order(before)
    assert order == whole_epoch[: len(order)]

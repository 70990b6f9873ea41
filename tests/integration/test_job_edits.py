# SPDX-License-Identifier: Apache-2.0
"""Seeks, skips and resizes of a job hold at a turn: for ranks that are apart, away, late or gone back."""

from __future__ import annotations

import pathlib
import re
import struct
from collections.abc import Callable
from typing import Any

import greedy
import on_gpu
import pytest
from integration.ranks import Rank, group, indices

ITEMS, BATCH, PREFETCH = 480, 2, 2
STEPS = ITEMS // (2 * BATCH)  # of two ranks

StepAt = tuple[int, int]


@pytest.fixture
def pipeline(make_dataset: Callable[..., Any], write_pipeline: Callable[..., Any]) -> pathlib.Path:
    small = ["fetch", "decode_image", {"resize": {"size": [8, 8]}}]
    return write_pipeline(
        make_dataset(count=ITEMS, size=(16, 16)),
        stages=small,
        batch={"size": BATCH, "last": "keep"},
    )


@pytest.fixture
def two(daemon: Any, start_rank: Callable[..., Rank]) -> list[Rank]:
    """The two ranks of job 'run', which was declared."""
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "2")
    return group(start_rank, daemon, 2, prefetch=PREFETCH)


def places(batches: list[dict[str, Any]]) -> list[StepAt]:
    return [(batch["epoch"], batch["step"]) for batch in batches]


def steps(epoch: int, begin: int, end: int) -> list[StepAt]:
    return [(epoch, step) for step in range(begin, end)]


def seek(daemon: Any, epoch: int, step: int = 0) -> StepAt:
    """Up to where the ranks read before they go there."""
    words = ("--epoch", str(epoch), "--step", str(step))
    begin = daemon.ctl_json("job", "seek", "run", *words)["seeks"][-1]["from"]
    return begin["epoch"], begin["step"]


def end(daemon: Any, ranks: list[Rank], wait_until: Callable[..., Any]) -> None:
    """Kills them; the daemon knows when it returns."""
    pids = {rank.pid for rank in ranks}
    for rank in ranks:
        rank.kill()
    wait_until(
        lambda: pids.isdisjoint(one["pid"] for one in daemon.ctl_json("get", "sessions")),
        "the end of the killed ranks' sessions",
    )


def start_from(
    start_rank: Callable[..., Rank], daemon: Any, states: dict[int, Any]
) -> dict[int, Rank]:
    """By rank of two; all of them are attached."""
    options = {"job": "run", "world_size": 2, "prefetch": PREFETCH}
    ranks = {rank: start_rank(daemon, rank=rank, **options) for rank in states}
    for rank, state in states.items():
        assert ranks[rank].do("load", state=state) == {}
    for rank in ranks.values():
        rank.do("place")
    return ranks


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("seek", "run", "--epoch", "2"), "sought"),
        (("seek", "run", "--skip", "3"), "skipped ahead"),
        (("resize", "run", "--shards", "3"), "resized"),
    ],
    ids=["seek", "skip", "resize"],
)
def test_a_change_is_refused_while_the_loops_of_two_ranks_are_in_different_places(
    daemon: Any, two: list[Rank], change: tuple[str, ...], what: str
) -> None:
    for rank in two:
        rank.take(3)
    two[1].do("break_off")
    assert places(two[1].take(1)) == [(1, 0)]
    refused = daemon.ctl("job", *change, check=False)
    assert refused.returncode == 1
    told = re.search(
        rf"job 'run' cannot be {what}: where this would begin, shard 0 will be at epoch 0, "
        r"step (\d+) and shard 1 at epoch 1, step (\d+); try again once the loops of all ranks are in "
        "the same place",
        refused.stderr,
    )
    assert told, refused.stderr
    # Both are told for the same turn: three steps of shard 1 were those of epoch 0.
    assert int(told[1]) == int(told[2]) + 3
    # The other loop says the same at the same turn: then they are together.
    two[0].do("break_off")
    assert places(two[0].take(1)) == [(1, 0)]
    daemon.ctl("job", *change)


def test_a_seek_holds_for_a_rank_that_comes_back_with_its_state(
    daemon: Any,
    start_rank: Callable[..., Rank],
    two: list[Rank],
    wait_until: Callable[..., Any],
) -> None:
    before = [rank.take(5) for rank in two]
    state = two[1].do("state")["state"]
    end(daemon, two[1:], wait_until)
    begin = seek(daemon, 2, 4)
    [back] = start_from(start_rank, daemon, {1: state}).values()
    way = steps(0, 5, begin[1]) + steps(2, 4, 7)
    after = [rank.take(len(way)) for rank in (two[0], back)]
    assert [places(batches) for batches in after] == [way, way]
    # Each row up to the seek came once, to one of the two.
    rows = [index for batches in before for index in indices(batches)]
    rows += [index for batches in after for index in indices(batches[:-3])]
    assert len(rows) == len(set(rows)) == begin[1] * 2 * BATCH


def test_a_rank_that_comes_late_goes_through_the_same_steps_as_the_others(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "2")
    first = start_rank(daemon, job="run", rank=0, world_size=2, prefetch=PREFETCH)
    first.take(3)
    begin = seek(daemon, 2, 4)
    way = steps(0, 0, begin[1]) + steps(2, 4, 6)
    late = start_rank(daemon, job="run", rank=1, world_size=2)
    assert places(late.take(len(way))) == way
    assert places(first.take(len(way) - 3)) == way[3:]


def test_a_shard_that_is_taken_away_and_brought_back_ahead_of_all_ranks_comes_in(
    daemon: Any,
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    two: list[Rank],
) -> None:
    for rank in two:
        rank.take(3)
    first = daemon.ctl_json("job", "resize", "run", "--shards", "1")["dealt_from"]["step"]
    # The ranks read one step more, so that the second resize is at a later turn than the first.
    assert places(two[0].take(1) + two[1].take(1)) == [(0, 3), (0, 3)]
    wait_until(
        lambda: any(
            rank["step"] + rank["ready"] > first for rank in daemon.ctl_json("get", "sessions")
        ),
        "a batch behind the first resize",
    )
    at = daemon.ctl_json("job", "resize", "run", "--shards", "2")["dealt_from"]
    two[0].take(at["step"] - 4)
    while "error" not in (last := two[1].do("next")):
        pass
    assert "the job was resized to 1 shard" in last["message"]
    again = start_rank(daemon, job="run", rank=1, world_size=2)
    assert places(again.take(2) + two[0].take(2)) == steps(0, at["step"], at["step"] + 2) * 2


def test_a_rank_that_waits_for_its_shard_waits_on_when_all_others_have_died(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    ranks = group(start_rank, daemon, 2, prefetch=PREFETCH)
    for rank in ranks:
        rank.take(3)
    states = {rank: ranks[rank].do("state")["state"] for rank in range(2)}
    at = daemon.ctl_json("job", "resize", "run", "--shards", "3")["dealt_from"]
    late = greedy.Bare(daemon.address)
    assert late.greet() == ""
    late.attach("images", "run", shard=2, num_shards=3)
    told = b""
    while b"no rank of the shards that were there before has come to that step" not in told:
        kind, told = late.receive()
        assert kind == greedy.PROGRESS, told
    end(daemon, ranks, wait_until)
    ranks = list(start_from(start_rank, daemon, states).values())
    way = steps(0, 3, at["step"] + 2)
    assert [places(rank.take(len(way))) for rank in ranks] == [way, way]
    kind, attached = late.answer()
    assert kind == greedy.ATTACHED, attached
    assert struct.unpack_from("<QQ", attached, 64) == (0, at["step"])
    late.socket.close()


def test_a_job_may_be_sought_again_at_once_and_each_rank_goes_through_both_seeks(
    daemon: Any, two: list[Rank]
) -> None:
    for rank in two:
        rank.take(3)
    first = seek(daemon, 2, 4)
    # One rank is behind the first seek, and the other one has not come to it.
    way = steps(0, 3, first[1]) + steps(2, 4, 6)
    assert places(two[0].take(len(way))) == way
    second = seek(daemon, 7)
    assert second > (2, 5)
    way += steps(2, 6, second[1]) + steps(7, 0, 2)
    taken = [len(steps(0, 3, first[1])) + 2, 0]
    for rank, had in zip(two, taken, strict=True):
        assert places(rank.take(len(way) - had)) == way[had:]


def test_a_state_from_before_a_seek_of_the_job_goes_through_the_seek_again(
    daemon: Any,
    start_rank: Callable[..., Rank],
    two: list[Rank],
    wait_until: Callable[..., Any],
) -> None:
    for rank in two:
        rank.take(3)
    states = {rank: two[rank].do("state")["state"] for rank in range(2)}
    begin = seek(daemon, 2, 4)
    way = steps(0, 3, begin[1]) + steps(2, 4, 8)
    rows = [indices(rank.take(len(way))) for rank in two]  # all are far behind the seek
    end(daemon, two, wait_until)
    again = start_from(start_rank, daemon, states)
    for rank in range(2):
        batches = again[rank].take(len(way))
        assert places(batches) == way
        assert indices(batches) == rows[rank]


def test_a_state_of_an_abandoned_branch_is_a_place_alone(
    daemon: Any,
    start_rank: Callable[..., Rank],
    two: list[Rank],
    wait_until: Callable[..., Any],
) -> None:
    def all_states(ranks: list[Rank]) -> dict[int, Any]:
        return {number: rank.do("state")["state"] for number, rank in enumerate(ranks)}

    for rank in two:
        rank.take(4)
    early = all_states(two)
    turn = 16 + on_gpu.ahead(PREFETCH)
    for rank in two:
        rank.take(turn - 4)
    abandoned = all_states(two)
    end(daemon, two, wait_until)

    # All go back, and the job goes elsewhere before the turn of the later states.
    ranks = list(start_from(start_rank, daemon, early).values())
    first = seek(daemon, 3)
    assert first < (0, turn)
    way = steps(0, 4, first[1]) + steps(3, 0, turn)
    assert [places(rank.take(len(way))) for rank in ranks] == [way, way]
    second = seek(daemon, 5)
    way = steps(3, turn, second[1]) + steps(5, 0, 2)
    assert [places(rank.take(len(way))) for rank in ranks] == [way, way]
    end(daemon, ranks, wait_until)

    # Neither seek is one of theirs, though the second one lies behind their turn.
    ranks = list(start_from(start_rank, daemon, abandoned).values())
    expected = steps(0, turn, STEPS)
    assert [places(rank.rest_of_epoch()) for rank in ranks] == [expected, expected]
    assert [places(rank.take(1)) for rank in ranks] == [[(1, 0)], [(1, 0)]]
    daemon.await_log(f"job 'run' begins a new run at epoch 0, step {turn}")

# SPDX-License-Identifier: Apache-2.0
"""Replicas of a shard: the same batches from one decode, through deaths, restarts and seeks."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Callable
from typing import Any

import on_gpu
import pytest
from integration.ranks import Rank, in_lockstep

ITEMS, BATCH = 96, 2
STEPS = ITEMS // BATCH
PREFETCH = 4


@pytest.fixture
def dataset(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=ITEMS, texture=True)


@pytest.fixture
def write(write_large_pipeline: Callable[..., pathlib.Path], dataset: Any) -> Callable[..., Any]:
    def write(**delivery: Any) -> pathlib.Path:
        return write_large_pipeline(
            dataset, batch={"size": BATCH}, delivery={"prefetch": PREFETCH, **delivery}
        )

    return write


@pytest.fixture
def waiting(make_daemon: Callable[..., Any], write: Callable[..., Any]) -> Any:
    """A daemon whose replicas wait for those that are away."""
    return make_daemon(pipelines=[write()])


@pytest.fixture
def going_on(make_daemon: Callable[..., Any], write: Callable[..., Any]) -> Any:
    return make_daemon(pipelines=[write(absent_replica="go_on")])


@pytest.fixture
def start_replica(start_rank: Callable[..., Rank]) -> Callable[..., Rank]:
    def start(daemon: Any, replica: int, replicas: int = 4, **options: Any) -> Rank:
        place = {"shard": 0, "num_shards": 1, "replica": replica, "replicas": replicas}
        return start_rank(daemon, job="run", **place, **options)

    return start


def seen(batches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (batch["epoch"], batch["step"], batch["indices"], batch["valid"], batch["sum"])
        for batch in batches
    ]


def until_mute(replica: Rank, limit: int) -> int:
    """How many batches it gets before it must wait; then one next() is under way."""
    for count in range(limit):
        replica.ask("next")
        if not replica.answered(1.0):
            return count
        batch = replica.answer()
        assert "end" not in batch and "error" not in batch, batch
    raise AssertionError(f"replica never waited in {limit} steps")


def rows_made(daemon: Any) -> int:
    return sum(
        stage["tasks"] for stage in daemon.ctl_json("get", "stages") if "decode" in stage["stage"]
    )


def reference(daemon: Any, start_rank: Callable[..., Rank]) -> list[tuple[Any, ...]]:
    """An epoch as a job without replicas has it."""
    alone = start_rank(daemon, job="alone")
    batches = seen(alone.rest_of_epoch())
    alone.do("close")
    return batches


def test_replicas_get_the_same_bytes_from_one_decode(
    waiting: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(waiting, start_rank)
    replicas = [start_replica(waiting, number) for number in range(4)]
    for batches in in_lockstep(replicas, STEPS):
        assert seen(batches) == expected
    for replica in replicas:
        assert "end" in replica.next()
    # One epoch, and what is made ahead of the next.
    ahead = PREFETCH + 2 + on_gpu.ahead(PREFETCH)
    assert ITEMS <= rows_made(waiting) <= ITEMS + ahead * BATCH


def test_a_late_replica_is_waited_for_and_misses_nothing(
    waiting: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(waiting, start_rank)
    first = start_replica(waiting, 0, 2)
    got = until_mute(first, STEPS)
    assert got <= 2 * PREFETCH
    late = start_replica(waiting, 1, 2)
    assert seen(late.take(got + 1)) == expected[: got + 1]
    assert seen([first.answer()]) == expected[got : got + 1]
    for batches in in_lockstep([first, late], STEPS - got - 1):
        assert seen(batches) == expected[got + 1 :]


def test_lag_is_bounded_and_the_wait_says_who_is_awaited(
    waiting: Any, start_replica: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    fast, slow = start_replica(waiting, 0, 2, timeout=60), start_replica(waiting, 1, 2)
    slow.take(3)
    got = until_mute(fast, STEPS)
    assert 3 < got <= 3 + 2 * (PREFETCH + 2)
    slow.take(got - 3)
    assert fast.answer()["step"] == got


def test_a_killed_replica_comes_back_where_it_was_and_the_others_wait(
    waiting: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(waiting, start_rank)
    replicas = [start_replica(waiting, number, 3) for number in range(3)]
    before = in_lockstep(replicas, 5)
    state = replicas[1].do("state")["state"]
    replicas[1].take(2)  # after its checkpoint
    replicas[1].kill()
    got = until_mute(replicas[0], STEPS)
    assert got < STEPS - 5
    replicas[2].take(got)
    back = start_replica(waiting, 1, 3)
    back.do("load", state=state)
    missing = back.take(got + 1)
    assert seen(before[1] + missing) == expected[: 6 + got], "what it lost is made again"
    assert seen([replicas[0].answer()]) == expected[5 + got : 6 + got]
    assert seen(replicas[2].take(1)) == expected[5 + got : 6 + got]
    left = STEPS - 6 - got
    for batches in in_lockstep([replicas[0], back, replicas[2]], left):
        assert seen(batches) == expected[6 + got :]


def test_others_go_on_without_a_killed_replica_that_still_misses_nothing(
    going_on: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(going_on, start_rank)
    replicas = [start_replica(going_on, number, 3) for number in range(3)]
    # Who begins afresh begins where the others are: all read the first step before any goes on.
    first = in_lockstep(replicas, 1)
    at = max(batches[0]["step"] for batches in first)
    for replica, batches in zip(replicas, first, strict=True):
        replica.take(at - batches[0]["step"])
    in_lockstep(replicas, 4)
    at += 5
    state = replicas[1].do("state")["state"]
    replicas[1].kill()
    for batches in in_lockstep([replicas[0], replicas[2]], 20):
        assert seen(batches) == expected[at : at + 20]
    back = start_replica(going_on, 1, 3)
    back.do("load", state=state)
    assert seen(back.take(20)) == expected[at : at + 20]
    for batches in in_lockstep([replicas[0], back, replicas[2]], STEPS - at - 20):
        assert seen(batches) == expected[at + 20 :]


def test_a_fresh_replica_begins_where_the_others_are_if_they_go_on(
    going_on: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(going_on, start_rank)
    first = start_replica(going_on, 0, 2)
    assert seen(first.take(20)) == expected[:20]
    late = start_replica(going_on, 1, 2)
    batch = late.next()
    assert 20 <= batch["step"] <= 20 + 2 * PREFETCH
    assert seen([batch]) == expected[batch["step"] : batch["step"] + 1]


def test_replicas_that_break_off_go_on_with_the_next_epoch(
    waiting: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    states = []
    replicas = [start_replica(waiting, number, 3) for number in range(3)]
    first = in_lockstep(replicas, 7)
    states = [replica.do("state")["state"] for replica in replicas]
    assert states[0] == states[1] == states[2]
    for replica in replicas:
        replica.do("break_off")
    for batches in in_lockstep(replicas, 3):
        assert [(batch["epoch"], batch["step"]) for batch in batches] == [(1, 0), (1, 1), (1, 2)]
    # And all the way back.
    for replica, state in zip(replicas, states, strict=True):
        replica.do("load", state=state)
    made = rows_made(waiting)
    expected = reference(waiting, start_rank)
    second = in_lockstep(replicas, 9)
    for of_one, more in zip(first, second, strict=True):
        assert seen(of_one + more) == expected[:16]
    spent = rows_made(waiting) - made
    assert spent <= ITEMS + 2 * (9 + 2 * (PREFETCH + 2)) * BATCH, "not once for each replica"


def test_a_second_live_consumer_of_a_replica_is_refused_by_pid(
    waiting: Any, start_replica: Callable[..., Rank]
) -> None:
    replicas = [start_replica(waiting, number, 2) for number in range(2)]
    in_lockstep(replicas, 1)
    second = start_replica(waiting, 1, 2)
    refused = second.do("next")
    assert "replica 1 of shard 0 of 1 of job 'run' is read by pid" in refused["message"]
    assert f"pid {replicas[1].pid} " in refused["message"]
    in_lockstep(replicas, 3)


def test_another_number_of_replicas_is_refused_with_both_numbers(
    waiting: Any, start_replica: Callable[..., Rank]
) -> None:
    start_replica(waiting, 0, 2).next()
    refused = start_replica(waiting, 2, 3).do("next")
    assert "replicas 2" in refused["message"] and "asks for replicas 3" in refused["message"]


def test_a_replica_number_that_there_is_not_is_refused_before_anything_is_made(
    waiting: Any,
) -> None:
    told = waiting.ctl(
        "consume",
        "images",
        "--job",
        "run",
        "--replicas",
        "2",
        "--replica",
        "2",
        "--batches",
        "1",
        check=False,
    )
    assert told.returncode != 0
    assert "replica" in told.stderr
    assert waiting.ctl_json("get", "jobs") == []


def test_replicas_go_on_over_the_daemons_death(
    waiting: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(waiting, start_rank)
    replicas = [start_replica(waiting, number, 3) for number in range(3)]
    before = in_lockstep(replicas, 11)
    before[2] += replicas[2].take(2)  # not all stand at the same step
    waiting.kill()
    waiting.start()
    for of_one, more in zip(before, in_lockstep(replicas, 20), strict=True):
        of_one += more
    for of_one, more in zip(before[:2], in_lockstep(replicas[:2], 2), strict=True):
        of_one += more
    for of_one, more in zip(before, in_lockstep(replicas, STEPS - 33), strict=True):
        assert seen(of_one + more) == expected


def test_one_that_has_finished_holds_nobody_up(
    waiting: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(waiting, start_rank)
    replicas = [start_replica(waiting, number, 3) for number in range(3)]
    in_lockstep(replicas, 4)
    replicas[0].do("close")
    for batches in in_lockstep(replicas[1:], 16):
        assert seen(batches) == expected[4:20]
    # Nor after a restart, which knows of it.
    waiting.restart()
    for batches in in_lockstep(replicas[1:], 14):
        assert seen(batches) == expected[20:34]
    # Nor for one that was killed and comes back when the last of the others has gone.
    state = replicas[2].do("state")["state"]
    replicas[2].kill()
    replicas[1].do("close")
    back = start_replica(waiting, 2, 3)
    back.do("load", state=state)
    assert seen(back.rest_of_epoch()) == expected[34:]


def test_one_that_has_finished_holds_nobody_up_after_the_daemons_death(
    waiting: Any,
    start_replica: Callable[..., Rank],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    expected = reference(waiting, start_rank)
    replicas = [start_replica(waiting, number, 2) for number in range(2)]
    in_lockstep(replicas, 4)
    replicas[0].do("close")
    wait_until(
        lambda: waiting.record("run")["done"] == [[0, 0]],
        "the record of the one that has finished",
    )
    replicas[1].take(1)
    waiting.kill()
    waiting.start()
    assert seen(replicas[1].rest_of_epoch()) == expected[5:]


def test_a_new_run_waits_for_all_its_replicas_again(
    waiting: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(waiting, start_rank)
    waiting.ctl("job", "create", "run", "--pipeline", "images", "--replicas", "2")
    for _ in range(2):
        replicas = [start_replica(waiting, number, 2) for number in range(2)]
        got = until_mute(replicas[0], STEPS)
        assert got <= 2 * PREFETCH
        assert seen(replicas[1].take(got + 1)) == expected[: got + 1]
        assert replicas[0].answer()["step"] == got
        for batches in in_lockstep(replicas, STEPS - got - 1):
            assert seen(batches) == expected[got + 1 :]
        for replica in replicas:
            replica.do("close")


def test_the_place_of_an_evicted_replica_is_kept_for_another_process(
    waiting: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(waiting, start_rank)
    replicas = [start_replica(waiting, number, 2) for number in range(2)]
    in_lockstep(replicas, 4)
    state = replicas[1].do("state")["state"]
    (victim,) = [
        session["id"]
        for session in waiting.ctl_json("get", "sessions")
        if session["pid"] == replicas[1].pid
    ]
    waiting.ctl("evict", str(victim))
    while "error" not in (last := replicas[1].do("next")):
        assert last["step"] < 4 + PREFETCH, "no more than was on its way"
    got = until_mute(replicas[0], STEPS)
    replicas[1].kill()
    replicas[1] = start_replica(waiting, 1, 2)
    replicas[1].do("load", state=state)
    assert seen(replicas[1].take(got + 1)) == expected[4 : 5 + got]
    assert seen([replicas[0].answer()]) == expected[4 + got : 5 + got]


def test_a_replica_that_is_stopped_is_named_and_goes_on(
    waiting: Any, start_replica: Callable[..., Rank], start_rank: Callable[..., Rank]
) -> None:
    expected = reference(waiting, start_rank)
    replicas = [start_replica(waiting, number, 2) for number in range(2)]
    in_lockstep(replicas, 4)
    replicas[1].signal(signal.SIGSTOP)
    got = until_mute(replicas[0], STEPS)
    replicas[1].signal(signal.SIGCONT)
    assert seen(replicas[1].take(got + 1)) == expected[4 : 5 + got]
    assert seen([replicas[0].answer()]) == expected[4 + got : 5 + got]

# SPDX-License-Identifier: Apache-2.0
"""What is left when a consumer or the daemon is killed: nothing of it, and nothing is lost."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import spdld
from integration.ranks import Rank, indices

ITEMS, BATCH = 48, 2
CYCLES = int(os.environ.get("SPDLD_ATTACH_CYCLES", "300"))


@pytest.fixture
def pipeline(
    make_dataset: Callable[..., Any], write_large_pipeline: Callable[..., Any]
) -> pathlib.Path:
    return write_large_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH, "last": "keep"})


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], pipeline: pathlib.Path) -> Any:
    return make_daemon(pipelines=[pipeline])


def sessions(daemon: Any) -> list[Any]:
    return daemon.ctl_json("get", "sessions")


def test_a_killed_consumer_leaves_nothing_though_its_child_has_the_socket(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    victim, other = (
        start_rank(daemon, job="run", rank=rank, world_size=2, prefetch=4) for rank in range(2)
    )
    for _ in range(3):
        victim.next(hold=True)
    taken = other.take(2)
    child = victim.do("fork")["pid"]
    held = {session["pid"]: session["leases"] for session in sessions(daemon)}
    assert held[victim.pid] >= 3
    victim.kill()
    wait_until(
        lambda: [session["pid"] for session in sessions(daemon)] == [other.pid],
        "the end of the killed consumer's session",
    )
    os.kill(child, 0)  # alive, and holds the socket and the mapping
    # Neither the other rank nor a replacement waits for what the dead one held.
    rest = other.rest_of_epoch()
    assert [batch["step"] for batch in rest] == list(range(2, ITEMS // BATCH // 2))
    replacement = start_rank(daemon, job="run", rank=0, world_size=2)
    rows = indices(replacement.rest_of_epoch())
    assert sorted(rows + indices(taken + rest)) == list(range(ITEMS))


def test_a_rank_does_not_wait_for_one_that_is_dead(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    ranks = [start_rank(daemon, job="run", rank=rank, world_size=3) for rank in range(3)]
    for rank in ranks:
        rank.next(hold=True)
    ranks[1].kill()
    for rank in (ranks[0], ranks[2]):
        rank.do("drop")
        assert len(rank.rest_of_epoch()) == ITEMS // BATCH // 3 - 1
        assert len(rank.rest_of_epoch()) == ITEMS // BATCH // 3


def test_killed_consumers_memory_is_given_back(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    for _ in range(3):
        rank = start_rank(daemon)
        rank.next(hold=True)
        rank.kill()
        wait_until(lambda: sessions(daemon) == [], "the end of the session")
    one = start_rank(daemon)
    one.next(hold=True)
    [session] = sessions(daemon)
    # Pooled arenas count as used, but are used again: there is never more than one.
    wait_until(
        lambda: daemon.ctl_json("status")["arena_used"] <= session["arena_bytes"],
        "the dead consumers' arenas in use again",
    )


@pytest.mark.parametrize("ends", ["kill", "stop"])
@pytest.mark.parametrize("declared", [False, True])
def test_ranks_go_on_when_the_daemon_comes_back_and_get_each_row_once(
    daemon: Any, start_rank: Callable[..., Rank], ends: str, declared: bool
) -> None:
    options: list[dict[str, Any]] = [
        {"job": "run", "rank": rank, "world_size": 2} for rank in range(2)
    ]
    if declared:
        daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "2")
        options = [{"job": "run", "shard": -1}] * 2
    ranks = [start_rank(daemon, **option) for option in options]
    rows = []
    sums = []
    for count, rank in enumerate(ranks, start=2):
        rows += indices(rank.take(count))
        batch = rank.next(hold=True)
        rows += batch["indices"]
        sums.append(batch["sum"])
    getattr(daemon, ends)()
    for rank, expected in zip(ranks, sums, strict=True):
        assert rank.do("sums") == {"sums": [expected]}, "what is held stays as it was"
        rank.ask("next")
    daemon.start()
    for rank in ranks:
        rows += rank.answer()["indices"]
    for rank in ranks:
        rows += indices(rank.rest_of_epoch())
    assert sorted(rows) == list(range(ITEMS))
    for rank, expected in zip(ranks, sums, strict=True):
        assert rank.do("sums") == {"sums": [expected]}
        assert rank.do("stats")["reconnects"] == 1


def test_a_rank_survives_a_daemon_that_is_killed_again_and_again(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon)
    rows = []
    for _ in range(4):
        rows += indices(rank.take(2))
        daemon.kill()
        rank.ask("next")
        daemon.start()
        rows += rank.answer()["indices"]
    rows += indices(rank.rest_of_epoch())
    assert sorted(rows) == list(range(ITEMS))


def test_a_rank_whose_daemon_stays_away_says_so(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, timeout=1.0)
    rank.take(1)
    daemon.kill()
    while "error" not in (batch := rank.do("next")):
        pass
    assert batch["error"] == "ConnectionError"
    assert f"lost the spdld daemon at {daemon.address}" in batch["message"]


def footprint(daemon: Any) -> dict[str, int]:
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    kib = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if "kB" in line}
    return {
        "fds": len(os.listdir(f"/proc/{daemon.pid}/fd")),
        "threads": len(os.listdir(f"/proc/{daemon.pid}/task")),
        "anonymous_kib": int(kib["RssAnon"]),
        "arena_bytes": daemon.ctl_json("status")["arena_used"],
    }


@pytest.mark.timeout(120 + CYCLES // 10)
def test_attaching_and_detaching_leaves_nothing_in_the_daemon(
    daemon: Any, wait_until: Callable[..., Any]
) -> None:
    def cycle() -> None:
        with spdld.Loader("images", address=daemon.address) as loader:
            batch = next(iter(loader))
        assert batch["image"].shape[0] == BATCH, "what is held outlives the loader"

    def settled() -> dict[str, int]:
        wait_until(lambda: sessions(daemon) == [], "the end of the last session")
        return footprint(daemon)

    for _ in range(CYCLES // 3):
        cycle()
    before = settled()
    for _ in range(CYCLES):
        cycle()
    wait_until(lambda: settled()["fds"] <= before["fds"], "as many descriptors as before")
    after = settled()
    assert after["threads"] == before["threads"]
    assert after["arena_bytes"] == before["arena_bytes"]
    # What the allocator keeps differs a little from time to time; a leak grows with the cycles.
    assert after["anonymous_kib"] <= before["anonymous_kib"] + 4096
    assert daemon.ctl_json("get", "jobs") == []


def test_consumers_that_are_killed_leave_nothing_in_the_daemon(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    def cycle() -> dict[str, int]:
        ranks = [start_rank(daemon, job="run", rank=rank, world_size=2) for rank in range(2)]
        for rank in ranks:
            rank.ask("next", hold=True)
        for rank in ranks:
            rank.answer()
        for rank in ranks:
            rank.kill()
        wait_until(lambda: sessions(daemon) == [], "the end of the sessions")
        return footprint(daemon)

    before = cycle()
    cycle()
    wait_until(lambda: footprint(daemon)["fds"] <= before["fds"], "as many descriptors as before")
    assert daemon.ctl_json("get", "jobs") == []

# SPDX-License-Identifier: Apache-2.0
"""What is left when a consumer or the daemon is killed: nothing of it, and nothing is lost."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import spdld
from chaos.footprint import Footprint, of_process
from integration.ranks import Rank, indices

ITEMS, BATCH = 48, 2
CYCLES = int(os.environ.get("SPDLD_ATTACH_CYCLES", "3000"))


@pytest.fixture
def pipeline(
    make_dataset: Callable[..., Any], write_large_pipeline: Callable[..., Any]
) -> pathlib.Path:
    return write_large_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH, "last": "keep"})


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], pipeline: pathlib.Path) -> Any:
    """One that does not keep for long what nobody reads."""
    return make_daemon(pipelines=[pipeline], settings={"arena": {"idle": "1s"}})


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


@pytest.mark.host_only
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


def footprint(daemon: Any) -> Footprint:
    """Arenas are pooled, so that one or two may stay for the next consumer."""
    return of_process(daemon.pid)


# A consumer that knows the protocol by its numbers alone, and stops after the step it is told.
BARE_CONSUMER = """
import os, signal, socket, struct, sys
step, path = sys.argv[1:]
data = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)

def reached(name):
    if name != step:
        return
    child = os.fork()  # keeps the socket
    if child == 0:
        signal.pause()
    print(child)
    signal.pause()

def expect(kind):
    while True:
        frame, fds, _, _ = socket.recv_fds(data, 65536, 1)
        if struct.unpack_from("<I", frame)[0] == kind:
            return frame

data.connect(path)
reached("connected")
data.send(struct.pack("<IIIIII48s", 1, 72, 0x4C445053, 5, 5, 0, b"bare 1.0"))
reached("hello")
expect(64)
reached("welcome")
pipeline = struct.pack("<II8s", 1, 6, b"images")
place = (0, 1, 1, 4)  # shard, shards, replicas, credits
numbers = (-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)  # of no batch size, and no cursor
head = struct.pack("<IIiiiIqqIIIIQQQQQIIII", 2, 112 + len(pipeline), *place, *numbers, 1, 0)
data.send(head + pipeline)
reached("attach")
expect(67)
reached("attached")
expect(68)
reached("arena")
lease = struct.unpack_from("<Q", expect(71), 8)[0]
reached("batch")
data.send(struct.pack("<IIQ", 3, 16, lease))
reached("release")
data.send(struct.pack("<II", 6, 8))
reached("detach")
"""
STEPS = (
    *("connected", "hello", "welcome", "attach", "attached"),
    *("arena", "batch", "release", "detach"),
)


@pytest.mark.host_only  # it names no GPU
@pytest.mark.parametrize("step", STEPS)
def test_a_consumer_may_be_killed_at_every_step_of_the_protocol(
    daemon: Any,
    spawn: Callable[..., subprocess.Popen[str]],
    wait_until: Callable[..., Any],
    step: str,
) -> None:
    daemon.ctl("consume", "images", "--batches", "1")
    wait_until(lambda: sessions(daemon) == [], "the end of the first session")
    before = footprint(daemon)
    victim = spawn(BARE_CONSUMER, step, f"{daemon.address}/data.sock")
    assert victim.stdout is not None
    child = int(victim.stdout.readline())
    victim.kill()
    victim.wait()
    wait_until(
        lambda: sessions(daemon) == [] and footprint(daemon).descriptors <= before.descriptors,
        "the end of all that the killed consumer had",
    )
    os.kill(child, 0)  # alive, and holds the socket
    wait_until(lambda: footprint(daemon).arenas <= 1, "the arena's return")
    assert daemon.ctl("consume", "images").returncode == 0
    os.kill(child, signal.SIGKILL)


def test_a_rank_that_is_stopped_stalls_itself_alone(
    daemon: Any, start_rank: Callable[..., Rank]
) -> None:
    stopped, other = (start_rank(daemon, job="run", rank=rank, world_size=2) for rank in range(2))
    rows = indices(stopped.take(2))
    os.kill(stopped.pid, signal.SIGSTOP)
    for epoch in range(3):
        batches = other.rest_of_epoch()
        assert {batch["epoch"] for batch in batches} == {epoch}
        if epoch == 0:
            rows += indices(batches)
    os.kill(stopped.pid, signal.SIGCONT)
    rows += indices(stopped.rest_of_epoch())
    assert sorted(rows) == list(range(ITEMS))


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


@pytest.mark.timeout(120 + CYCLES // 10)
@pytest.mark.host_only
def test_attaching_and_detaching_leaves_nothing_in_the_daemon(
    daemon: Any, wait_until: Callable[..., Any]
) -> None:
    def cycles(count: int) -> Footprint:
        for _ in range(count):
            with spdld.Loader("images", address=daemon.address) as loader:
                batch = next(iter(loader))
            assert batch["image"].shape[0] == BATCH, "what is held outlives the loader"
        del batch, loader
        wait_until(lambda: sessions(daemon) == [], "the end of the last session")
        return footprint(daemon)

    before = cycles(CYCLES // 3)
    cycles(CYCLES)
    wait_until(
        lambda: footprint(daemon).descriptors <= before.descriptors,
        "as many descriptors as before",
    )
    after = footprint(daemon)
    # A consumer may come before its forerunner's arena is back; the pool then has one more.
    assert after.arenas <= 4
    assert after.threads == before.threads
    # What the allocator keeps differs a little from time to time; a leak grows with the cycles.
    assert after.anonymous_bytes <= before.anonymous_bytes + (4 << 20)
    assert daemon.ctl_json("get", "jobs") == []


@pytest.mark.host_only
def test_consumers_that_are_killed_leave_nothing_in_the_daemon(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    def cycle() -> Footprint:
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
    for _ in range(4):
        cycle()
    wait_until(
        lambda: footprint(daemon).descriptors <= before.descriptors,
        "as many descriptors as before",
    )
    # A rank may come before its forerunner's arena is back; the pool then has one more for it.
    assert footprint(daemon).arenas <= 4
    assert daemon.ctl_json("get", "jobs") == []


def test_refused_attaches_leave_nothing_while_their_process_lives(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    start_rank(daemon, job="run", rank=0, world_size=2).take(1)
    before = footprint(daemon)
    for pipeline in ["images", "unknown"] * 25:
        loader = spdld.Loader(pipeline, address=daemon.address, job="run", rank=0, world_size=2)
        with pytest.raises(spdld.PipelineError, match=r"is read by pid|there are: images"):
            next(iter(loader))
        loader.close()
    wait_until(
        lambda: footprint(daemon).descriptors <= before.descriptors,
        "as many descriptors as before",
    )

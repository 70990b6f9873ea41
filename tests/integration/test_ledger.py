# SPDX-License-Identifier: Apache-2.0
"""start="ledger": a job goes on where all its ranks had got to, by the daemon's own record."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from integration.ranks import Rank, group, indices

ITEMS, BATCH = 96, 2


@pytest.fixture
def pipeline(make_dataset: Callable[..., Any], write_pipeline: Callable[..., Any]) -> pathlib.Path:
    return write_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH, "last": "keep"})


@pytest.fixture
def end(daemon: Any, wait_until: Callable[..., Any]) -> Callable[..., None]:
    """end(ranks): kills them all; the daemon knows when it returns."""

    def kill(ranks: list[Rank]) -> None:
        pids = {rank.pid for rank in ranks}
        for rank in ranks:
            rank.kill()
        wait_until(
            lambda: pids.isdisjoint(one["pid"] for one in daemon.ctl_json("get", "sessions")),
            "the end of the killed ranks' sessions",
        )

    return kill


def in_order(ranks: list[Rank], steps: int) -> list[int]:
    """The items of the next steps in the order of the epoch, whatever the number of ranks."""
    taken = [rank.take(steps) for rank in ranks]
    return [index for step in range(steps) for one in taken for index in one[step]["indices"]]


@pytest.mark.parametrize("second", [2, 3, 1])
def test_a_new_run_goes_on_where_every_rank_had_given_back_its_batches(
    daemon: Any,
    start_rank: Callable[..., Rank],
    end: Callable[..., None],
    whole_epoch: list[int],
    second: int,
) -> None:
    ranks = group(start_rank, daemon, 2)
    assert in_order(ranks, 5) == whole_epoch[: 5 * 2 * BATCH]
    ranks[0].take(3)  # one is ahead: what the other one has not had yet must come again
    end(ranks)
    ranks = group(start_rank, daemon, second, start="ledger")
    place = ranks[0].next()
    assert (place["epoch"], place["step"]) == (0, 5)
    rest = [ranks[0].rest_of_epoch(), *(rank.rest_of_epoch() for rank in ranks[1:])]
    rows = place["indices"] + [index for batches in rest for index in indices(batches)]
    assert sorted(rows) == sorted(whole_epoch[5 * 2 * BATCH :])


def test_a_batch_that_was_not_released_comes_again(
    daemon: Any,
    start_rank: Callable[..., Rank],
    end: Callable[..., None],
    make_dataset: Callable[..., Any],
    write_large_pipeline: Callable[..., Any],
) -> None:
    # Large enough to be leased; a small batch is copied when it is handed out.
    large = write_large_pipeline(make_dataset(count=ITEMS), name="large", batch={"size": BATCH})
    daemon.ctl("apply", "-f", large)
    [rank] = group(start_rank, daemon, 1, pipeline="large")
    rank.take(3)
    rank.next(hold=True)
    rank.take(2)
    end([rank])
    [again] = group(start_rank, daemon, 1, pipeline="large", start="ledger")
    assert again.next()["step"] == 3


def test_a_shard_that_was_never_read_holds_the_record_back(
    daemon: Any, start_rank: Callable[..., Rank], end: Callable[..., None]
) -> None:
    early = start_rank(daemon, job="run", rank=0, world_size=2)
    early.take(4)
    end([early])
    ranks = group(start_rank, daemon, 2, start="ledger")
    assert [rank.next()["step"] for rank in ranks] == [0, 0]


def test_all_ranks_of_a_declared_job_begin_at_the_same_step(
    daemon: Any, start_rank: Callable[..., Rank], end: Callable[..., None]
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "2")
    ranks = group(start_rank, daemon, 2)
    for rank, count in zip(ranks, (4, 7), strict=True):
        rank.take(count)
    end(ranks)
    ranks = group(start_rank, daemon, 2, start="ledger")
    assert [rank.next()["step"] for rank in ranks] == [4, 4]


def test_a_rank_that_alone_comes_back_goes_on_at_its_own_place(
    daemon: Any, start_rank: Callable[..., Rank], end: Callable[..., None]
) -> None:
    ranks = group(start_rank, daemon, 2)
    for rank, count in zip(ranks, (4, 7), strict=True):
        rank.take(count)
    end(ranks[1:])
    back = start_rank(daemon, job="run", rank=1, world_size=2, start="ledger")
    assert back.next()["step"] == 7


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_the_record_outlives_the_daemon(
    daemon: Any,
    start_rank: Callable[..., Rank],
    end: Callable[..., None],
    wait_until: Callable[..., Any],
    ends: str,
) -> None:
    ranks = group(start_rank, daemon, 2)
    for rank in ranks:
        rank.take(6)
    if ends == "kill":  # written once a second; a clean stop writes at once
        wait_until(
            lambda: daemon.ctl_json("get", "jobs", "run")["ledger"]["at"].get("step") == 6,
            "the record of step 6",
        )
    for rank in ranks:
        os.kill(rank.pid, signal.SIGSTOP)  # they see nothing of the restart
    getattr(daemon, ends)()
    for rank in ranks:
        rank.kill()
    daemon.start()
    ranks = group(start_rank, daemon, 3, start="ledger")
    assert [rank.next()["step"] for rank in ranks] == [6, 6, 6]


def test_a_job_is_forgotten_as_long_after_its_end_as_the_configuration_says(
    daemon: Any,
    pipeline: pathlib.Path,
    start_rank: Callable[..., Rank],
    end: Callable[..., None],
    wait_until: Callable[..., Any],
) -> None:
    def ended(job: str) -> None:
        rank = start_rank(daemon, job=job, rank=0, world_size=1)
        rank.take(3)
        end([rank])

    def known() -> list[tuple[str]]:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as records:
            return records.execute(
                "SELECT job FROM jobs UNION ALL SELECT job FROM positions ORDER BY job"
            ).fetchall()

    database = daemon.state_dir / "spdld.sqlite"
    for job in ("old", "young"):
        ended(job)
    daemon.stop()
    assert known() == [("old",), ("old",), ("young",), ("young",)]
    # As if they had ended so long ago.
    with contextlib.closing(sqlite3.connect(database)) as records, records:
        for job, minutes in (("old", 61), ("young", 59)):
            for table in ("jobs", "positions"):
                records.execute(
                    f"UPDATE {table} SET kept_unix_ms = kept_unix_ms - ? WHERE job = ?",
                    (minutes * 60_000, job),
                )
    daemon.configure(pipelines=[pipeline], settings={"job": {"retain": "1h"}})
    daemon.start()
    wait_until(lambda: ("old",) not in known(), "the end of the old job's record")
    assert known() == [("young",), ("young",)]
    refused = start_rank(daemon, job="old", start="ledger").do("next")
    assert "nothing is known of where job 'old' was" in refused["message"]
    assert start_rank(daemon, job="young", start="ledger").next()["step"] == 3


def test_nothing_known_is_an_error(daemon: Any, start_rank: Callable[..., Rank]) -> None:
    refused = start_rank(daemon, job="unheard-of", start="ledger").do("next")
    assert refused["error"] == "PipelineError"
    assert "nothing is known of where job 'unheard-of' was" in refused["message"]
    assert "start afresh, or from a saved state_dict()" in refused["message"]
    shell = daemon.ctl(
        *("consume", "images", "--job", "unheard-of", "--start", "ledger"), check=False
    )
    assert "--start ledger: nothing is known of where job 'unheard-of' was" in shell.stderr
    assert "start afresh, or at a --cursor" in shell.stderr
    assert daemon.ctl_json("get", "jobs") == []


def test_a_fresh_run_makes_the_record_of_the_one_before_void(
    daemon: Any, start_rank: Callable[..., Rank], end: Callable[..., None]
) -> None:
    for _ in range(2):
        ranks = group(start_rank, daemon, 2)
        assert [rank.next()["step"] for rank in ranks] == [0, 0]
        ranks[0].take(5)
        end(ranks)
    ranks = group(start_rank, daemon, 2, start="ledger")
    assert [rank.next()["step"] for rank in ranks] == [1, 1]


def test_a_saved_state_wins_over_the_record_and_the_difference_is_shown(
    daemon: Any,
    start_rank: Callable[..., Rank],
    end: Callable[..., None],
    wait_until: Callable[..., Any],
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "1")
    [rank] = group(start_rank, daemon, 1)
    rank.take(3)
    state = rank.do("state")["state"]
    rank.take(5)
    end([rank])
    wait_until(
        lambda: daemon.ctl_json("get", "jobs", "run")["ledger"]["at"].get("step") == 8,
        "the record of step 8",
    )
    [rank] = group(start_rank, daemon, 1, start="ledger")
    rank.do("load", state=state)
    assert rank.next()["step"] == 3
    conflict = daemon.ctl_json("get", "jobs", "run")["ledger"]["conflict"]
    assert "shard 0 goes on at epoch 0, step 3 by its own cursor" in conflict
    assert "the ledger had epoch 0, step 8" in conflict
    assert conflict in " ".join(daemon.ctl("get", "jobs", "run").stdout.split())


@pytest.fixture
def tiny_disk(daemon: Any) -> Iterator[pathlib.Path]:
    """The daemon's state_dir on a file system of its own, which a test may fill."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    daemon.stop()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", daemon.state_dir],
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let tests mount")
    daemon.start()
    yield daemon.state_dir
    daemon.kill()
    subprocess.run(["umount", daemon.state_dir], check=True)


def test_a_full_disk_stops_no_training_and_is_told_once(
    daemon: Any,
    start_rank: Callable[..., Rank],
    tiny_disk: pathlib.Path,
    wait_until: Callable[..., Any],
) -> None:
    rank = start_rank(daemon, job="run", rank=0, world_size=1)
    rank.take(1)
    with (tiny_disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError):
        while True:
            ballast.write(bytes(4096))
    batches = rank.take(5)
    wait_until(lambda: daemon.ctl_json("status").get("warnings", []), "a warning of the full disk")
    batches += rank.rest_of_epoch()
    assert [batch["step"] for batch in batches] == list(range(1, ITEMS // BATCH))
    [warning] = daemon.ctl_json("status")["warnings"]
    assert "where jobs are is not kept" in warning
    (tiny_disk / "ballast").unlink()
    rank.take(2)
    wait_until(lambda: not daemon.ctl_json("status").get("warnings", []), "the warning's end")
    daemon.await_log("will know where jobs were")
    assert daemon.stop() == 0
    assert daemon.log().count("will know where jobs were") == 1

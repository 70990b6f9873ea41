# SPDX-License-Identifier: Apache-2.0
"""The daemon dies, stops or fails at named places; only a build with failpoints has them."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import pytest
from integration.failpoints import BUILT_IN, needs_failpoints
from integration.ranks import Rank, indices

ITEMS, BATCH = 48, 2


@pytest.fixture
def pipeline(
    make_dataset: Callable[..., Any], write_large_pipeline: Callable[..., Any]
) -> pathlib.Path:
    return write_large_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH, "last": "keep"})


@pytest.mark.failpoints
def test_what_is_not_a_failpoint_is_refused_where_there_are_any(
    make_daemon: Callable[..., Any],
) -> None:
    environment = {"SPDLD_FAILPOINTS": "no.such.point=kill"}
    if BUILT_IN:
        with pytest.raises(RuntimeError, match=r"(?s)ended with 2 .*there is no point 'no.such."):
            make_daemon(environment=environment)
    else:
        assert make_daemon(environment=environment).stop() == 0


@needs_failpoints
@pytest.mark.parametrize(
    "failpoint",
    [
        "delivery.arena.create=kill@1",
        "delivery.arena.send=kill@1",
        "delivery.slot.loaned=kill@1",
        "delivery.slot.committed=kill@1",
        "delivery.slot.committed=kill@7",
        "delivery.batch.send=kill@1",
        "delivery.batch.send=kill@6",
        "delivery.batch.sent=kill@1",
        "delivery.batch.sent=kill@6",
        "delivery.release=kill@1",
        "delivery.release=kill@5",
    ],
)
def test_a_death_inside_loses_nothing(
    make_daemon: Callable[..., Any],
    start_rank: Callable[..., Rank],
    pipeline: pathlib.Path,
    failpoint: str,
) -> None:
    daemon = make_daemon(pipelines=[pipeline], environment={"SPDLD_FAILPOINTS": failpoint})
    ranks = [start_rank(daemon, job="run", rank=rank, world_size=2) for rank in range(2)]
    for rank in ranks:
        rank.ask("next")
    rows: list[list[int]] = [[], []]
    reading = [True, True]
    while any(reading):
        if not daemon.running:
            # The daemon took SIGKILL from itself, and comes back as it was without the failpoint.
            assert daemon.wait() == -signal.SIGKILL
            daemon._environment["SPDLD_FAILPOINTS"] = ""
            daemon.start()
            failpoint = ""
        for which, rank in enumerate(ranks):
            if not reading[which] or not rank.answered(0.02):
                continue
            batch = rank.answer()
            assert "error" not in batch, batch
            reading[which] = "end" not in batch
            if reading[which]:
                rows[which] += batch["indices"]
                rank.ask("next")
    assert failpoint == "", "the daemon lived on"
    assert sorted(rows[0] + rows[1]) == list(range(ITEMS))


@needs_failpoints
def test_a_disk_that_fails_for_a_while_is_asked_again(
    make_daemon: Callable[..., Any], start_rank: Callable[..., Rank], pipeline: pathlib.Path
) -> None:
    failing = {"SPDLD_FAILPOINTS": "source.file.read=error(EIO)@3;source.file.open=error(ESTALE)@9"}
    daemon = make_daemon(pipelines=[pipeline], environment=failing)
    batches = start_rank(daemon).rest_of_epoch()
    assert sorted(indices(batches)) == list(range(ITEMS))
    assert all(all(batch["valid"]) for batch in batches)


@needs_failpoints
def test_an_arena_without_memory_is_an_error_that_says_so(
    make_daemon: Callable[..., Any], start_rank: Callable[..., Rank], pipeline: pathlib.Path
) -> None:
    failing = {"SPDLD_FAILPOINTS": "delivery.arena.pages=error(ENOSPC)@1"}
    daemon = make_daemon(pipelines=[pipeline], environment=failing)
    refused = start_rank(daemon).do("next")
    assert refused["error"] == "PipelineError"
    assert "No space left on device" in refused["message"]
    # The next one finds what the first did not.
    assert len(start_rank(daemon).rest_of_epoch()) == ITEMS // BATCH


@needs_failpoints
def test_an_index_that_cannot_be_kept_costs_nothing_but_time(
    make_daemon: Callable[..., Any], start_rank: Callable[..., Rank], pipeline: pathlib.Path
) -> None:
    failing = {"SPDLD_FAILPOINTS": "source.listing.write=error(ENOSPC)"}
    daemon = make_daemon(pipelines=[pipeline], environment=failing)
    assert sorted(indices(start_rank(daemon).rest_of_epoch())) == list(range(ITEMS))
    [warning] = daemon.ctl_json("status")["warnings"]
    assert "was not kept and will be made again after a restart" in warning
    assert "No space left on device" in warning


@needs_failpoints
def test_a_daemon_that_stands_still_is_waited_for(
    make_daemon: Callable[..., Any],
    start_rank: Callable[..., Rank],
    pipeline: pathlib.Path,
    wait_until: Callable[..., Any],
) -> None:
    standing = {"SPDLD_FAILPOINTS": "delivery.batch.send=stop@5"}
    daemon = make_daemon(pipelines=[pipeline], environment=standing)
    rank = start_rank(daemon)
    first = rank.take(4)
    rank.ask("next")
    stat = pathlib.Path(f"/proc/{daemon.pid}/stat")
    wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", "the daemon's stop")
    assert not rank.answered()
    os.kill(daemon.pid, signal.SIGCONT)
    batches = [*first, rank.answer(), *rank.rest_of_epoch()]
    assert sorted(indices(batches)) == list(range(ITEMS))

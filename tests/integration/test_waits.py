# SPDX-License-Identifier: Apache-2.0
"""A consumer that waits is told that the daemon lives."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Callable
from typing import Any

from integration.ranks import Rank


def test_a_reload_ends_no_wait(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    start_rank: Callable[..., Rank],
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(make_dataset())])
    daemon.ctl(
        *("job", "create", "run", "--pipeline", "images", "--shards", "1", "--epochs", "manual")
    )
    # Shorter than the wait, longer than the time between two signs of life.
    rank = start_rank(daemon, job="run", shard=-1, timeout=4.0)
    rank.rest_of_epoch()
    rank.ask("next")
    for _ in range(3):
        daemon.signal(signal.SIGHUP)
        assert not rank.answered(2.0)
    daemon.ctl("job", "advance", "run")
    assert rank.answer()["epoch"] == 1


def test_spdlctl_waits_for_a_batch_as_long_as_it_is_told_to(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(make_dataset())])
    daemon.signal(signal.SIGSTOP)
    try:
        done = daemon.ctl("--timeout", "0.5", "consume", "images", check=False)
    finally:
        daemon.signal(signal.SIGCONT)
    assert done.returncode == 1
    assert "no sign of life from the daemon for 500 ms" in done.stderr

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

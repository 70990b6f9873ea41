# SPDX-License-Identifier: Apache-2.0
"""What a chaos run draws is of the seed alone, and leaves no failpoint out."""

from __future__ import annotations

import pathlib
import re

from chaos import schedule
from chaos.schedule import Blow

FAILPOINT_H = pathlib.Path(__file__).resolve().parents[2] / "server/base/failpoint.h"


def test_a_daemon_may_die_at_every_failpoint_that_there_is() -> None:
    declared = re.findall(r'Point\{"([a-z.]+)"', FAILPOINT_H.read_text())
    assert sorted(schedule.FAILPOINTS) == declared


def test_every_failpoint_is_drawn_sooner_or_later() -> None:
    events = schedule.draw(1, 100.0, {Blow.KILL_DAEMON: 1000}, 1, 1, failpoints=True)
    drawn = {armed.split("=")[0] for event in events for armed in event.failpoints.split(";")}
    assert drawn == set(schedule.FAILPOINTS)


def test_the_seed_says_all() -> None:
    counts = {Blow.KILL_DAEMON: 5, Blow.SWAP: 5, Blow.KILL_RANK: 5}
    first, second, other = (
        schedule.draw(seed, 10.0, counts, 2, 4, failpoints=True) for seed in (1, 1, 2)
    )
    assert first == second
    assert first != other

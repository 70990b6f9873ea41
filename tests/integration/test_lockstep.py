# SPDX-License-Identifier: Apache-2.0
"""Short runs of tests/chaos/lockstep.py; long ones are for whoever has an evening."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chaos import lockstep, operations
from chaos.operations import Kind
from chaos.stepper import Stepper

# The same each time: a failure here is to be one that can be looked for.
SEEDS = {"shards": "44", "replicas": "14"}
# What nobody refuses, wherever the job has come to.
CERTAIN = (
    Kind.KILL_DAEMON,
    Kind.STOP_DAEMON,
    Kind.REPLACE_RANK,
    Kind.RESTART,
    Kind.SET_EPOCH,
    Kind.SKIP_STEPS,
)


@pytest.mark.parametrize("world", SEEDS)
def test_ranks_are_given_the_same_steps_whatever_is_done_to_their_job(
    capsys: pytest.CaptureFixture[str], world: str
) -> None:
    assert operations.draw_world(int(SEEDS[world])).replicas == (world == "replicas")
    status = lockstep.main(["--seed", SEEDS[world], "--steps", "300"])
    said = capsys.readouterr().out
    print(said)
    assert status == 0
    assert "300 steps of all ranks" in said
    for kind in CERTAIN:
        assert re.search(rf"\d {kind.value}(,|$)", said, re.MULTILINE), kind


def test_a_rank_that_misses_a_step_is_found_and_told_how_to_see_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = Stepper.ask, [0]

    def miss_one(stepper: Stepper, what: str, **arguments: Any) -> None:
        asked[0] += 1
        if asked[0] == 11:
            stepper.do(what, **arguments)
        ask(stepper, what, **arguments)

    monkeypatch.setattr(Stepper, "ask", miss_one)
    status = lockstep.main(["--seed", SEEDS["shards"], "--steps", "20", "--only", ""])
    said = capsys.readouterr().out
    assert status == 1
    assert re.search(r"at step \d+ of the run: another step", said)
    assert re.search(r"again: .*lockstep\.py --seed 44 --steps 20", said)

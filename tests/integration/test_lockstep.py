# SPDX-License-Identifier: Apache-2.0
"""Short runs of tests/chaos/lockstep.py; long ones are for whoever has an evening."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chaos import apart, lockstep, marked, operations
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


# Ranks that go in lockstep, and ranks epochs apart.
APART_SEEDS = {"lockstep": "6", "apart": "2"}


@pytest.mark.parametrize("pace", APART_SEEDS)
def test_every_row_comes_once_through_resizes_skips_seeks_and_kills(
    capsys: pytest.CaptureFixture[str], pace: str
) -> None:
    seed = APART_SEEDS[pace]
    assert operations.draw_world(int(seed)).replicas == (pace == "lockstep")
    status = lockstep.main(["--apart", "--seed", seed, "--steps", "60"])
    said = capsys.readouterr().out
    print(said)
    assert status == 0
    assert "60 turns" in said
    for kind in (Kind.KILL_DAEMON, Kind.RESIZE):
        assert re.search(rf"\d {kind.value}(,|$)", said, re.MULTILINE), kind


def test_a_row_that_comes_twice_to_ranks_apart_is_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Stepper.answer
    first: dict[int, Any] = {}

    def repeat_items(stepper: Stepper) -> dict[str, Any]:
        found = answer(stepper)
        if "items" in found:
            found["items"] = first.setdefault(found["epoch"], found["items"])
        return found

    monkeypatch.setattr(Stepper, "answer", repeat_items)
    status = lockstep.main(
        ["--apart", "--seed", APART_SEEDS["apart"], "--steps", "5", "--only", ""]
    )
    said = capsys.readouterr().out
    assert status == 1
    assert re.search(r"item \d+ came at \(0, 0\) before", said)
    assert re.search(r"again: .*lockstep\.py --seed 2 --steps 5 --apart", said)


TEXTS = {1: marked.Text(mark=0, batch=1, last="keep")}


def step_of(epoch: int, step: int, item: int) -> dict[str, Any]:
    """What a rank is given: one item, by version 1 of TEXTS."""
    return {"epoch": epoch, "step": step, "items": [item], "version": 1, "marks": [[0, 0]]}


def test_rows_that_never_come_to_ranks_apart_are_found() -> None:
    judge = apart.Judge()
    for step in range(marked.ITEMS - 1):
        assert judge.given(0, step_of(0, step, item=step), TEXTS) == ""
    assert judge.given(0, {"end": 1, "state": {"epoch": 1, "step": 0}}, TEXTS) == ""
    [problem] = judge.incomplete(1)
    assert f"1 items did not come, and 0 were skipped: [{marked.ITEMS - 1}]" in problem
    judge.skips((0, 5), 1)
    assert judge.incomplete(1) == []


def test_an_epochs_end_that_a_later_seek_leads_to_as_well_is_no_sign_of_that_seek() -> None:
    judge = apart.Judge()

    def given(epoch: int, step: int, item: int) -> str:
        return judge.given(0, step_of(epoch, step, item), TEXTS)

    assert given(11, 19, 0) == ""
    judge.seeks += [apart.Seek((12, 0), (10, 5)), apart.Seek((10, 7), (12, 0))]
    assert judge.given(0, {"end": 1, "state": {"epoch": 12, "step": 0}}, TEXTS) == ""
    assert [given(10, 5, 1), given(10, 6, 2), given(12, 0, 3)] == ["", "", ""]
    assert "is given where (12, 1) is next" in given(12, 2, 4)


def test_a_shard_that_comes_back_goes_on_there_and_nowhere_else() -> None:
    def next_step(back: tuple[int, int], given: int) -> str:
        judge = apart.Judge()
        assert judge.given(1, step_of(0, 3, item=3), TEXTS) == ""
        judge.comes_back(1, (0, 4), back)
        return judge.given(1, step_of(0, given, item=given), TEXTS)

    assert next_step((0, 9), 9) == ""
    assert "(0, 4) is given where (0, 9) is next" in next_step((0, 9), 4)
    assert next_step((0, 4), 4) == ""
    assert "(0, 5) is given where (0, 4) is next" in next_step((0, 4), 5)


def test_a_refused_rank_may_lack_the_rows_that_were_on_their_way_and_no_more() -> None:
    def lacking(rows: int, behind: bool) -> list[str]:
        judge = apart.Judge()
        for item in range(marked.ITEMS - rows):
            assert judge.given(0, step_of(0, item, item), TEXTS) == ""
        judge.arrives(1, (0, 1) if behind else (1, 0))
        assert judge.refused(1, 0, rows=2) == ""
        return judge.incomplete(1)

    assert lacking(2, behind=True) == []
    assert "3 items did not come, and 2 were skipped" in lacking(3, behind=True)[0]
    assert "1 items did not come, and 0 were skipped" in lacking(1, behind=False)[0]


def test_a_change_before_a_step_that_a_rank_was_given_is_found() -> None:
    judge = apart.Judge()
    assert judge.given(1, step_of(2, 7, item=1), TEXTS) == ""
    assert judge.changes((2, 8)) == ""
    assert "(2, 8) is the first that nobody has" in judge.changes((2, 7))

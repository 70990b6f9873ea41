# SPDX-License-Identifier: Apache-2.0
"""Short runs of tests/chaos/lockstep.py; long ones are for whoever has an evening."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chaos import lockstep, marked, operations, turns
from chaos.operations import Kind
from chaos.stepper import Stepper

# The same each time: a failure here is to be one that can be looked for.
SEEDS = {"shards": "44", "replicas": "925"}
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
    assert "60 rounds" in said
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
    assert re.search(r"item \d+ came in turn 0 before", said)
    assert re.search(r"again: .*lockstep\.py --seed 2 --steps 5 --apart", said)


TEXTS = {version: marked.Text(mark=version, batch=2, last="keep") for version in (1, 2)}


class Told:
    """A judge of one shard or two, and what it is told. Versions 1 and 2 are versions 0 and 1 of the log."""

    def __init__(self, shards: int = 1) -> None:
        self.judge = turns.Judge(batch=2, shards=shards)
        for shard in range(shards):
            self.judge.arrives(shard, 0)

    def given(
        self, turn: int, items: list[int], shard: int = 0, version: int = 1, **at: int
    ) -> str:
        answer = {"epoch": 0, "step": turn, "items": items, "version": version, **at}
        marks = [[TEXTS[version].mark, 0]]
        return self.judge.given(
            shard, {**answer, "marks": marks, "state": {"turn": turn + 1}}, TEXTS
        )

    def learn(self, *edits: dict[str, Any], run: int = 1) -> str:
        base = {"at": {"epoch": 0, "step": 0}, "position": 0, "shards": 1, "version": 0}
        log = {"run": run, "base_turn": 0, "base": base, "edits": list(edits)}
        return self.judge.learn(
            {"schedule": log, "phases": {"0": {"version": 1}, "1": {"version": 2}}}
        )


def test_steps_of_ranks_apart_are_those_of_the_jobs_log() -> None:
    told = Told()
    assert told.given(0, [0, 1]) == ""
    edits: list[dict[str, Any]] = [
        {"turn": 1, "skip": {"epoch": 0, "steps": 3}},
        {"turn": 2, "seek": {"epoch": 5, "step": 47}},
        {"turn": 3, "shards": 2},
    ]
    assert told.learn(*edits) == ""
    assert told.given(1, [2, 3], step=4) == ""
    assert told.given(2, [4, 5], epoch=5, step=47) == ""
    assert told.given(3, [0, 1], epoch=6, step=0) == ""
    assert told.judge.entry(1) == 3
    told.judge.arrives(1, 3)
    assert told.given(3, [2, 3], shard=1, epoch=6, step=0) == ""
    assert told.judge.incomplete(4) == []
    assert told.judge.announced("seek", (0, 5)) == ""
    assert "it begins at turn 2, which is (0, 5)" in told.judge.announced("seek", (0, 4))


def test_another_step_or_turn_than_the_logs_is_found() -> None:
    told = Told()
    assert "turn 0 is at (0, 1), and not at (0, 0)" in told.given(0, [0, 1], step=1)
    assert "it is of turn 2, and not of 1" in told.given(2, [0, 1])


def test_a_step_of_a_shard_that_is_none_of_the_turns_is_found() -> None:
    told = Told()
    told.judge.arrives(1, 0)
    assert "turn 0 is of 1 shards" in told.given(0, [0, 1], shard=1)


def test_rows_that_come_twice_or_never_to_ranks_apart_are_found() -> None:
    told = Told(2)
    assert told.given(0, [0, 1]) == ""
    assert "item 1 came in turn 0 before" in told.given(0, [1, 2], shard=1)
    told = Told(2)
    assert told.given(0, [0, 1]) == ""
    [problem] = told.judge.incomplete(1)
    assert "turn 0, at (0, 0): 2 rows of 4 came, and nothing to shards [1]" in problem
    assert told.given(0, [2], shard=1) == ""
    assert "3 rows of 4 came" in told.judge.incomplete(1)[0]


def test_two_versions_of_one_turn_are_found() -> None:
    told = Told(2)
    assert told.given(0, [0, 1]) == ""
    assert "of version 2, and another shard's of 1" in told.given(0, [2, 3], shard=1, version=2)
    told = Told()
    assert told.given(0, [0, 1]) == ""
    assert told.given(1, [2, 3]) == ""
    assert "turn 1 was of version 1, and is of version 2" in told.learn({"turn": 1, "version": 1})


@pytest.mark.parametrize(
    "edit", [{"seek": {"epoch": 2, "step": 0}}, {"skip": {"epoch": 0, "steps": 1}}, {"shards": 2}]
)
def test_a_change_at_a_turn_that_a_rank_was_given_is_found(edit: dict[str, Any]) -> None:
    told = Told()
    assert [told.given(turn, [2 * turn, 2 * turn + 1]) for turn in range(2)] == ["", ""]
    assert told.learn({"turn": 2, **edit}) == ""
    assert "turn 1, which ranks were given at (0, 1), has changed" in told.learn(
        {"turn": 1, **edit}
    )
    assert told.learn(run=2) == "the job has begun another run"


def test_a_rank_whose_shard_goes_reads_up_to_the_resize_and_no_further() -> None:
    def ended_at(turn: int) -> str:
        told = Told()
        assert told.learn({"turn": 0, "shards": 2}, {"turn": 2, "shards": 1}) == ""
        told.judge.arrives(1, turn)
        return told.judge.ended(1)

    assert "it is ended at turn 1, which is of 2 shards" in ended_at(1)
    assert ended_at(2) == ""


def test_an_end_within_an_epoch_is_found() -> None:
    told = Told()
    assert told.given(0, [0, 1]) == ""
    end = {"end": 1, "state": {"turn": 1}}
    assert "the epoch goes on at (0, 1)" in told.judge.given(0, end, TEXTS)
    assert told.learn({"turn": 1, "seek": {"epoch": 1, "step": 0}}) == ""
    assert told.judge.given(0, end, TEXTS) == ""

# SPDX-License-Identifier: Apache-2.0
"""What ranks of one job were given, turn by turn, held against the job's log of edits.

The log is what state_dir has of it. It is folded here step by step, which is slow and plain.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from chaos import marked

StepAt = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class State:
    """Of the job at a turn; `last` of its pipeline is "keep" or "pad", so that no row is left out."""

    epoch: int
    step: int
    position: int  # of the epoch's order
    shards: int
    version: int  # as the log counts them
    seek: int = -1  # turn of the job's last seek; from each on rows come anew

    @property
    def at(self) -> StepAt:
        return self.epoch, self.step

    def rows(self, batch: int) -> int:
        """Of the step, over all shards."""
        return min(self.shards * batch, marked.ITEMS - self.position)

    def advanced(self, batch: int) -> State:
        position = self.position + self.rows(batch)
        if position == marked.ITEMS:
            return dataclasses.replace(self, epoch=self.epoch + 1, step=0, position=0)
        return dataclasses.replace(self, step=self.step + 1, position=position)

    def applied(self, edit: dict[str, Any], batch: int) -> State:
        if "shards" in edit:
            return dataclasses.replace(self, shards=edit["shards"])
        if "version" in edit:
            return dataclasses.replace(self, version=edit["version"])
        after = self
        if "skip" in edit:
            for _ in range(edit["skip"]["steps"]):
                if after.epoch == edit["skip"]["epoch"]:
                    after = after.advanced(batch)
            return after
        epoch, step = place_of(edit["seek"])
        after = dataclasses.replace(self, epoch=epoch, step=0, position=0, seek=edit["turn"])
        for _ in range(step):
            if after.epoch == epoch:
                after = after.advanced(batch)
        return after


def place_of(value: Any) -> StepAt:
    """Of a place in the job's record, or in an answer of spdlctl."""
    epoch, step = value if isinstance(value, list) else (value["epoch"], value["step"])
    return int(epoch), int(step)


class Judge:
    """Told of all that each shard was given. All ranks go through the same turns: no loop seeks.

    given() and learn() say what is wrong; empty: nothing is.
    """

    def __init__(self, batch: int, shards: int) -> None:
        self._batch = batch
        self._run = 0  # the job's; not known before the first record
        self._shards = shards  # before all edits
        self._edits: list[dict[str, Any]] = []
        self._states = [State(0, 0, 0, shards, 0)]  # by turn
        self._rows: dict[tuple[int, int], dict[int, int]] = collections.defaultdict(dict)
        self._given: dict[int, dict[int, int]] = collections.defaultdict(dict)  # rows, by shard
        self._made: dict[int, int] = {}  # the pipeline's version, by turn
        self._next: dict[int, int] = {}  # turn, by shard
        self._lost: dict[int, set[int]] = collections.defaultdict(set)  # turns, by shard

    def at(self, turn: int) -> State:
        while len(self._states) <= turn:
            state = self._states[-1].advanced(self._batch)
            self._states.append(self._through(state, self._edits, len(self._states)))
        return self._states[turn]

    def _through(self, state: State, edits: list[dict[str, Any]], turn: int) -> State:
        for edit in edits:
            if edit["turn"] == turn:
                state = state.applied(edit, self._batch)
        return state

    def announced(self, what: str, at: StepAt) -> str:
        """Where the last edit of that kind was said to begin: behind the step before its turn, and
        behind the edits of its turn that come before it, unless it is a seek, which leaves all of
        them behind."""
        number = [number for number, edit in enumerate(self._edits) if what in edit][-1]
        turn = self._edits[number]["turn"]
        state = State(0, 0, 0, self._shards, 0)
        if turn:
            state = self.at(turn - 1).advanced(self._batch)
        if what != "seek":
            state = self._through(state, self._edits[:number], turn)
        begin = state.at
        return "" if at == begin else f"it begins at turn {turn}, which is {begin}, and not {at}"

    def next_turn(self, shard: int) -> int:
        return self._next[shard]

    def beyond(self) -> int:
        """The first turn that no rank was given."""
        return max(self._given, default=-1) + 1

    def arrives(self, shard: int, turn: int) -> None:
        """A rank that is to begin there."""
        self._next[shard] = turn

    def learn(self, record: dict[str, Any]) -> str:
        """The job's record, after each change that was accepted."""
        log = record["schedule"]
        if self._run not in (0, log["run"]):
            return "the job has begun another run"
        self._run = log["run"]
        before, turn = self._states.copy(), log["base_turn"]
        self._edits, self._shards = log["edits"], log["base"]["shards"]
        base = State(
            *place_of(log["base"]["at"]),
            position=log["base"]["position"],
            shards=log["base"]["shards"],
            version=log["base"]["version"],
            seek=self.at(turn).seek,
        )
        self._states[turn:] = [self._through(base, self._edits, turn)]
        for given in range(turn, self.beyond()):
            if dataclasses.replace(self.at(given), version=before[given].version) != before[given]:
                return f"turn {given}, which ranks were given at {before[given].at}, has changed"
            due = record["phases"][str(self.at(given).version)]["version"]
            if self._made[given] != due:
                return f"turn {given} was of version {self._made[given]}, and is of version {due}"
        return ""

    def entry(self, shard: int) -> int:
        """The turn at which the shard came into the job last."""
        turn, shards = 0, self._shards
        for edit in self._edits:
            if shards <= shard < edit.get("shards", shards):
                turn = edit["turn"]
            shards = edit.get("shards", shards)
        return turn

    def given(self, shard: int, answer: dict[str, Any], texts: dict[int, marked.Text]) -> str:
        """A step, or an epoch's end."""
        turn = answer["state"]["turn"]
        if "end" in answer:
            if turn != self._next[shard]:
                return f"its state is of turn {turn}, and not of {self._next[shard]}"
            due, before = self.at(turn), self.at(turn - 1)
            goes_on = (due.epoch, due.seek) == (before.epoch, before.seek)
            return f"the epoch goes on at {due.at}" if goes_on else ""
        turn -= 1
        if turn != self._next[shard]:
            return f"it is of turn {turn}, and not of {self._next[shard]}"
        self._next[shard] += 1
        state, at = self.at(turn), (answer["epoch"], answer["step"])
        if at != state.at:
            return f"turn {turn} is at {at}, and not at {state.at}"
        if shard >= state.shards:
            return f"turn {turn} is of {state.shards} shards"
        if shard in self._given[turn]:
            return f"turn {turn} came before"
        self._given[turn][shard] = len(answer["items"])
        seen = self._rows[state.seek, state.epoch]
        for item in answer["items"]:
            if item in seen:
                return f"item {item} came in turn {seen[item]} before"
            seen[item] = turn
        version = self._made.setdefault(turn, answer["version"])
        if version != answer["version"]:
            return f"it is of version {answer['version']}, and another shard's of {version}"
        text = texts.get(answer["version"])
        if text is None or {mark for mark, _ in answer["marks"]} - {text.mark}:
            return f"it is not what version {answer['version']} makes"
        return ""

    def ended(self, shard: int) -> str:
        """Its rank was told that the job has no such shard any more."""
        turn = self._next.pop(shard)
        # It may be one again by an edit of the same turn.
        of_turn = [
            edit["shards"] for edit in self._edits if edit["turn"] == turn and "shards" in edit
        ]
        least = min([self.at(turn).shards, *of_turn])
        return f"it is ended at turn {turn}, which is of {least} shards" * (shard < least)

    def lacks(self, shard: int, turns: range) -> None:
        """Nobody can be given these turns of the shard."""
        self._lost[shard].update(turns)

    def incomplete(self, until: int) -> list[str]:
        """Turns before `until` that lack rows; all ranks have come as far."""
        found = []
        for turn in range(until):
            state, given = self.at(turn), self._given[turn]
            missing = sorted(set(range(state.shards)) - given.keys())
            if missing and all(turn in self._lost[shard] for shard in missing):
                continue
            if missing or sum(given.values()) != state.rows(self._batch):
                found.append(
                    f"turn {turn}, at {state.at}: {sum(given.values())} rows of "
                    f"{state.rows(self._batch)} came, and nothing to shards {missing}"
                )
        return found

# SPDX-License-Identifier: Apache-2.0
"""What ranks that go in lockstep were given: whether it is the same step, and the next one."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

from chaos import marked
from chaos.marked import Text
from chaos.operations import BATCH_SIZES

StepAt = tuple[int, int]
Answer = dict[str, Any]  # as chaos/stepper.py says


def told(answer: Answer) -> str:
    """In few words."""
    if "error" in answer:
        return f"{answer['error']}: {answer['message']}"
    if "end" in answer:
        return f"an end, then epoch {answer['end']}"
    place = f"{answer['epoch']}/{answer['step']}"
    return f"{place} v{answer['version']} {answer['marks']} {answer['items']}"


def disagreement(answers: Sequence[Answer], replicas: bool, texts: dict[int, Text]) -> str:
    """What is not as it must be with all; empty if all is. `texts` are those of versions."""
    first = answers[0]
    if any("error" in answer for answer in answers):
        return "an error"
    keeps = any(text.last == "keep" for text in texts.values())  # what may be a row less for some
    for what in ("end", "epoch", "step") if keeps else ("end", "epoch", "step", "rows"):
        if any(other.get(what) != first.get(what) for other in answers):
            return f"another {what}"
    if "end" in first:
        return ""
    if replicas and any(other["items"] != first["items"] for other in answers):
        return "replicas with other rows"
    items = [item for answer in answers for item in answer["items"]]
    if not replicas and len(items) > len(set(items)):
        return "shards with a row in common"
    marks = {tuple(mark) for answer in answers for mark in answer["marks"]}
    if len(marks) > 1:
        return f"rows of several makes: {sorted(marks)}"
    return _wrong_version(answers, texts, marks)


def _wrong_version(
    answers: Sequence[Answer], texts: dict[int, Text], marks: set[marked.Mark]
) -> str:
    """Versions may be two only where the one is the other, tuned."""
    said = {answer["version"] for answer in answers}
    if unknown := said - texts.keys():
        return f"version {unknown.pop()}, which nobody applied"
    # What is tuned is no part of what is made.
    made = {dataclasses.replace(texts[version], concurrency=0) for version in said}
    if len(made) > 1:
        return "another version"
    return "" if {mark for mark, _ in marks} <= {text.mark for text in made} else "not its version"


class Account:
    """What came of each epoch, and where the next step may be. What is done to that is told to it."""

    def __init__(self, last: str) -> None:
        self._drops = last == "drop"
        self._next: StepAt = (0, 0)
        self._targets: list[StepAt] = []  # of seeks that the ranks have not come to
        self._replays: list[StepAt] = []  # targets of seeks that may be gone along with again
        self._seen: set[int] = set()
        self._whole = True  # the epoch so far: from its start, nothing left out
        self._skipped: dict[int, int] = {}  # steps, by epoch
        self._most_left = 0  # items that make no step at the end, if it drops them

    @property
    def at(self) -> StepAt:
        """Where the next step is, if nothing comes between."""
        return self._next

    def sought(self, at: StepAt) -> None:
        self._targets.append(at)

    @property
    def targets(self) -> list[StepAt]:
        """Of seeks that the ranks have not come to, or may go along with again."""
        return self._replays + self._targets

    def skipped(self, epoch: int, steps: int) -> None:
        """By an operator: the epoch's steps are counted on behind what is left out."""
        self._skipped[epoch] = self._skipped.get(epoch, 0) + steps

    def set_epoch(self, epoch: int) -> None:
        """By all ranks, before the next step."""
        if self._next != (epoch, 0):
            self._begin((epoch, 0))
        self._next = (epoch, 0)

    def skip_steps(self, steps: int) -> None:
        """By all ranks, before the next step. The epoch may end before."""
        epoch, step = self._next
        self._next = (epoch, step + steps)
        self._skipped.setdefault(epoch, 0)

    def back_to(self, past: Account, replays: Sequence[StepAt]) -> None:
        """All have gone back to where they were when `past` was so.

        `replays` is where seeks that were under way lead: whoever is not behind one goes along with
        it, unless it is another run by now.
        """
        skipped = self._skipped  # it stays so
        self.__dict__.update(copy.deepcopy(past.__dict__))
        self._skipped = skipped
        self._targets.clear()
        self._replays = list(replays)

    def ended(self, at: StepAt) -> str:
        """With an epoch that is over where its end was not told; empty: `at` may come next."""
        return self._end() if at == (self._next[0] + 1, 0) else ""

    def problem(self, answers: Sequence[Answer], replicas: bool) -> str:
        """With what the ranks, which agree, were given; empty: it may come next."""
        shards = 1 if replicas else len(answers)
        self._most_left = max(BATCH_SIZES) * shards - 1  # a larger one may have been due
        if "end" in answers[0]:
            state = answers[0]["state"]
            return self._end() or self._goes_on((state["epoch"], state["step"]))
        at = (answers[0]["epoch"], answers[0]["step"])
        if self.skips_to(at):
            self._next = at
        # A seek may lead to the very step that comes next, where rows came that come again.
        again = self._seen.intersection(answers[0]["items"])
        if at == self._next and again and self._lands(at):
            self._begin(at)
        if at != self._next:
            if not self._lands(at):
                return f"it is not {self._next[0]}/{self._next[1]}, which comes next"
            self._begin(at)
        self._next = (at[0], at[1] + 1)
        return self._add(answers[:1] if replicas else answers)

    def skips_to(self, at: StepAt) -> bool:
        """Whether an operator's skip leads there from the step that comes next."""
        return self._skips_from(self._next, at)

    def _skips_from(self, place: StepAt, at: StepAt) -> bool:
        epoch, step = place
        return at[0] == epoch and 0 < at[1] - step <= self._skipped.get(epoch, 0)

    def _goes_on(self, at: StepAt) -> str:
        """Behind the end of an epoch."""
        if at == self._next:
            return ""
        if not self._lands(at):
            return f"behind the end of an epoch is {at}, and not {self._next}"
        self._begin(at)
        self._next = at
        return ""

    def _lands(self, at: StepAt) -> bool:
        """Where a seek leads to; those before it are done with, too."""
        for seeks in (self._targets, self._replays):
            if at in seeks:
                del seeks[: seeks.index(at) + 1]
                return True
        for seeks in (self._replays, self._targets):
            for number, target in enumerate(seeks):
                # It may be an epoch's end that was sought, or one that a skip behind it leads to.
                behind = (target[0] + 1, 0)
                if at == behind or any(self._skips_from(place, at) for place in (target, behind)):
                    del seeks[: number + 1]
                    return True
        return False

    def _begin(self, at: StepAt) -> None:
        self._seen.clear()
        self._whole = at[1] == 0

    def _add(self, answers: Sequence[Answer]) -> str:
        for answer in answers:
            if twice := self._seen.intersection(answer["items"]):
                return f"{sorted(twice)} came before in this epoch"
            self._seen.update(answer["items"])
        return ""

    def _end(self) -> str:
        epoch, missing = self._next[0], marked.ITEMS - len(self._seen)
        self._next = (epoch + 1, 0)
        # A seek ends an epoch, too.
        known = self._whole and epoch not in self._skipped
        known = known and not self._targets and not self._replays
        self._begin(self._next)
        if known and missing > (self._most_left if self._drops else 0):
            return f"{missing} items did not come in epoch {epoch}"
        return ""

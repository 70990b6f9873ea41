# SPDX-License-Identifier: Apache-2.0
"""Ranks of one job that each go at their own pace, epochs apart, and an operator who changes it.

Also in lockstep, where the world says so. The judge is what all of them were given: each row of each
epoch once, but for what a skip or a seek left out; one version a step; and no change that begins
before a step that anybody was given.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import daemon as daemon_module
from chaos import agreement, marked
from chaos.march import JOB, REFUSED, TIMEOUT_S, FindingError
from chaos.marked import PIPELINE
from chaos.operations import MOST_RANKS, Kind, Operation, World
from chaos.stepper import Stepper
from chaos.victim import DaemonVictim

StepAt = tuple[int, int]
MOST_EPOCHS_APART = 3
MOST_STEPS_AT_ONCE = 40
# Of the daemon to a rank whose shard is no more: at its end, or when it reconnects.
NO_SHARD = ("the job was resized to", "any more: the job was resized")


@dataclasses.dataclass
class Place:
    """Where a rank stands in what it was given."""

    at: StepAt | None = None  # its next step; none: it has been given none yet
    passage: int = 0  # so many seeks it has gone along with


@dataclasses.dataclass(frozen=True)
class Seek:
    start: StepAt  # from where on none reads as before
    to: StepAt


class Judge:
    """Holds what ranks are given against what must be. Told of each change that the daemon has made.

    A passage is what lies between two seeks: in each of them, rows and versions are counted anew.
    """

    def __init__(self) -> None:
        self.seeks: list[Seek] = []
        self._places: dict[int, Place] = {}
        self._rows: dict[tuple[int, int], dict[int, StepAt]] = collections.defaultdict(dict)
        self._versions: dict[tuple[int, StepAt], int] = {}
        self._skipped: collections.Counter[int] = collections.Counter()  # most rows, by epoch
        self._beyond: dict[int, StepAt] = collections.defaultdict(lambda: (0, 0))
        # By shard: the step at which a resize ended it, and the later one at which another resize
        # gives it steps again.
        self._away: dict[int, dict[StepAt, StepAt]] = collections.defaultdict(dict)

    def place(self, shard: int) -> Place:
        return self._places.setdefault(shard, Place(passage=len(self.seeks)))

    def arrives(self, shard: int, at: StepAt | None) -> None:
        """A rank that is to begin there; none: where the daemon places it."""
        self._places[shard] = Place(at, len(self.seeks))

    def given(self, shard: int, answer: dict[str, Any], texts: dict[int, marked.Text]) -> str:
        """What is wrong with a step, or an epoch's end; empty: nothing."""
        place = self.place(shard)
        if "end" in answer:
            at = (answer["state"]["epoch"], answer["state"]["step"])
            due = place.at and (place.at[0] + 1, 0)
            if at == due:
                place.at = at  # what is given next says which way it has come here
                return ""
            return self._follows(shard, place, at, due)
        at = (answer["epoch"], answer["step"])
        if problem := self._follows(shard, place, at, place.at):
            return problem
        place.at = (at[0], at[1] + 1)
        self._beyond[place.passage] = max(self._beyond[place.passage], place.at)
        seen = self._rows[place.passage, at[0]]
        for item in answer["items"]:
            if item in seen:
                return f"item {item} came at {seen[item]} before"
            seen[item] = at
        version = self._versions.setdefault((place.passage, at), answer["version"])
        if version != answer["version"]:
            return f"it is of version {answer['version']}, and another shard's of {version}"
        text = texts.get(answer["version"])
        if text is None or {mark for mark, _ in answer["marks"]} - {text.mark}:
            return f"it is not what version {answer['version']} makes"
        return ""

    def _follows(self, shard: int, place: Place, at: StepAt, due: StepAt | None) -> str:
        while due in self._away[shard]:
            due = self._away[shard][due]
        as_due = due is None or at == due
        for passage in range(place.passage, len(self.seeks)):
            seek = self.seeks[passage]
            # An epoch's last step and the next one's first are the same place.
            to_end = at == (seek.to[0] + 1, 0)
            # A seek may lead to the very step that is due: nobody reads on from where the first of
            # those begins that the rank has yet to go along with.
            ends = self.seeks[place.passage].start
            led_here = at >= ends if at == seek.to else to_end and at > ends
            if led_here or (not as_due and (at == seek.to or to_end)):
                place.passage = passage + 1
                as_due = True
                break
        if not as_due:
            return f"{at} is given where {due} is next"
        place.at = at
        return ""

    def changes(self, at: StepAt) -> str:
        """What is wrong with a change of the job that begins there."""
        beyond = self._beyond[len(self.seeks)]
        return f"it begins at {at}, and {beyond} is the first that nobody has" * (at < beyond)

    def skips(self, at: StepAt, rows: int) -> None:
        self._skipped[at[0]] += rows

    def sought(self, seek: Seek) -> None:
        """An operator's seek, from which on rows are dealt out anew."""
        self.seeks.append(seek)
        self._away.clear()

    def comes_back(self, shard: int, left: StepAt, at: StepAt) -> None:
        """The shard, which was to end at `left`, has steps again from `at` on."""
        if left < at:
            self._away[shard][left] = at

    def refused(self, shard: int, first: int, rows: int) -> str:
        """What is wrong with refusing the shard's rank, once shard `first` has begun the run again.

        At most `rows` rows were on their way to that rank when it died, and are lost.
        """
        mine, theirs = self.place(shard), self.place(first)
        if mine.at is None or theirs.at is None:
            return f"shard {shard} is refused, and has read nothing"
        if (mine.passage, mine.at) < (theirs.passage, theirs.at):
            for epoch in range(mine.at[0], max(mine.at[0], theirs.at[0]) + 1):
                self._skipped[epoch] += rows
        return ""

    def incomplete(self, until: int) -> list[str]:
        """Epochs up to `until` that lack rows; all ranks have read as far."""
        found = []
        begin: StepAt = (0, 0)
        for passage in range(len(self.seeks) + 1):
            end = self.seeks[passage].start if passage < len(self.seeks) else (until, 0)
            for epoch in range(begin[0] + (begin[1] > 0), end[0]):
                missing = set(range(marked.ITEMS)) - self._rows[passage, epoch].keys()
                if len(missing) > self._skipped[epoch]:
                    found.append(
                        f"epoch {epoch} behind {passage} seeks: {len(missing)} items did not come, "
                        f"and {self._skipped[epoch]} were skipped: {sorted(missing)[:8]}"
                    )
            if passage < len(self.seeks):
                begin = self.seeks[passage].to
        return found


class Apart:
    """One run, as March is one: turns, before which something may be done, then the judgement."""

    def __init__(self, world: World, directory: pathlib.Path) -> None:
        self.world = dataclasses.replace(world, replicas=False)
        if self.world.last == "drop":  # what it drops cannot be told from what is lost
            self.world = dataclasses.replace(self.world, last="keep")
        self.lockstep = world.replicas
        self.directory = directory
        self.story: list[str] = []
        self.steps = 0
        self.accepted: list[Kind] = []
        self._judge = Judge()
        self._numbers = itertools.count()
        self._text = marked.Text(0, self.world.batch, self.world.last)
        self._texts = {1: self._text}
        marked.write_images(directory / "images")
        self.daemon = DaemonVictim(pipelines=[self._write(self._text)])
        self.ranks: dict[int, Stepper] = {}
        self._shards = 2
        self._states: dict[int, dict[str, Any]] = {}
        self._dealt_in: dict[int, StepAt] = {}  # by a resize, since the last seek
        # Ranks that a resize leaves the steps up to there. One whose shard comes back at that very
        # step goes on, unless it had been given all before already.
        self._leaving: dict[int, StepAt] = {}
        self._worlds: dict[int, int] = {}  # by rank: of how many it was when it was started
        self._random = random.Random(f"paces {world}")

    def run(self, operations: Sequence[Operation], turns: int) -> None:
        self.daemon.start()
        self._fill()
        due = list(operations)
        for before in range(turns):
            while due and due[0].before == before:
                self._do(due.pop(0))
            self._turn()
        self._finish()

    def scene(self) -> str:
        if not self.daemon.running:
            return f"the daemon does not run:\n{self.daemon.log()[-3000:]}"
        asked = [("get", "jobs"), ("get", "jobs", JOB), ("get", "sessions")]
        return "\n".join(self.daemon.ctl(*words, check=False).stdout for words in asked)

    def close(self) -> None:
        for rank in self.ranks.values():
            rank.close()
        if self.directory.exists():
            (self.directory / "daemon.log").write_text(self.daemon.log())
        self.daemon.close()

    # Reading.

    def _turn(self) -> None:
        if self.lockstep:
            places = {shard: self._judge.place(shard) for shard in sorted(self.ranks)}
            lowest = min((place.passage, place.at or (0, 0)) for place in places.values())
            chosen = [
                shard
                for shard, place in places.items()
                if (place.passage, place.at or (0, 0)) == lowest
            ]
            steps = 1
        else:
            chosen = [self._random.choice(sorted(self.ranks))]
            steps = self._random.randint(1, MOST_STEPS_AT_ONCE)
        for _ in range(steps):
            for shard in chosen:
                if shard in self.ranks and not self._too_far(shard):
                    self._step(shard)
        self.steps += 1

    def _epoch(self, shard: int) -> int:
        at = self._judge.place(shard).at
        return at[0] if at else 0

    def _too_far(self, shard: int) -> bool:
        """The others are epochs behind: it waits, so that all come to what an operator does."""
        begun = [one for one in self.ranks if self._judge.place(one).at]
        lowest = min((self._epoch(one) for one in begun), default=0)
        return self._epoch(shard) > lowest + MOST_EPOCHS_APART

    def _step(self, shard: int) -> dict[str, Any]:
        answer = self.ranks[shard].do("step")
        if "error" in answer:
            if any(words in answer.get("message", "") for words in NO_SHARD):
                self._leave(shard)
                return answer
            raise FindingError(f"shard {shard}: {agreement.told(answer)}")
        problem = self._judge.given(shard, answer, self._texts)
        if problem:
            raise FindingError(
                f"in turn {self.steps} of the run, shard {shard} {agreement.told(answer)}: {problem}"
            )
        self._states[shard] = answer["state"]
        leaves_at, at = self._leaving.get(shard), self._judge.place(shard).at
        if leaves_at and at and at > leaves_at:
            del self._leaving[shard]
        return answer

    def _leave(self, shard: int) -> None:
        self.ranks.pop(shard).close()
        self._states.pop(shard, None)
        self._leaving.pop(shard, None)
        self._fill()

    def _fill(self) -> None:
        """A rank for each shard that there is."""
        for shard in range(self._shards):
            if shard not in self.ranks:
                self._judge.arrives(shard, self._dealt_in.get(shard))
                self.ranks[shard] = self._start(shard, self._shards)
                self._check_done(shard, self.ranks[shard].do("place"))  # it is there from now on

    @staticmethod
    def _check_done(shard: int, answer: dict[str, Any]) -> None:
        if "error" in answer:
            raise FindingError(f"shard {shard}: {agreement.told(answer)}")

    def _start(self, shard: int, world: int) -> Stepper:
        self._worlds[shard] = world
        return Stepper(
            environment={"PYTHONPATH": str(daemon_module.build_dir() / "python")},
            pipeline=PIPELINE,
            address=self.daemon.address,
            job=JOB,
            prefetch=self.world.prefetch,
            timeout=TIMEOUT_S,
            rank=shard,
            world_size=world,
        )

    def _finish(self) -> None:
        """All read up to the end of the epoch in which the furthest is, then are judged."""
        until = 1 + max(self._epoch(shard) for shard in self.ranks)
        while True:
            behind = [
                shard
                for shard in sorted(self.ranks)
                if self._epoch(shard) < until
                or self._judge.place(shard).passage < len(self._judge.seeks)
                or self._judge.place(shard).at is None
            ]
            if not behind:
                break
            for shard in behind:
                if shard not in self.ranks:
                    continue
                self._step(shard)
                if self._epoch(shard) > until + MOST_EPOCHS_APART:
                    raise FindingError(f"shard {shard} reads on, and does not go along with a seek")
        lowest = min(self._epoch(shard) for shard in self.ranks)
        if problems := self._judge.incomplete(lowest):
            raise FindingError("\n".join(problems))

    # What is done.

    def _do(self, operation: Operation) -> None:
        kind = operation.kind
        self.story.append(f"before turn {self.steps}: #{operation.number} {kind.value}")
        if kind in (Kind.KILL_DAEMON, Kind.STOP_DAEMON):
            self.story[-1] += self._restart_daemon(operation)
        elif kind is Kind.REPLACE_RANK:
            self.story[-1] += self._replace(operation, [operation.rank % MOST_RANKS])
        elif kind is Kind.REPLACE_RANKS:
            shards = sorted(self.ranks)
            self._random.shuffle(shards)
            # The first to come to a job that has ended says of how many shards it is.
            shards.sort(key=lambda shard: shard >= self._shards)
            self.story[-1] += self._replace(operation, shards)
        else:
            self.story[-1] += self._operate(operation)
        if (status := self.daemon.died()) is not None:
            raise FindingError(f"the daemon ended by itself with {status}")

    def _restart_daemon(self, operation: Operation) -> str:
        if operation.kind is Kind.KILL_DAEMON:
            self.daemon.kill()
        elif (status := self.daemon.stop()) != 0:
            raise FindingError(f"the daemon ended with {status} on SIGTERM")
        self.daemon.start()
        self.accepted.append(operation.kind)
        if operation.number % 3 == 0:
            return ""
        # Who has used up what it had comes back; the job is changed only then.
        for shard in sorted(self.ranks):
            while shard in self.ranks and not self._attached(shard):
                self._step(shard)
        return ", and all come back"

    def _sessions(self) -> list[int]:
        return [session["shard"] for session in self.daemon.ctl_json("get", "sessions")]

    def _attached(self, shard: int) -> bool:
        return shard in self._sessions()

    def _replace(self, operation: Operation, shards: list[int]) -> str:
        """All of them are dead before the first is back. Whoever has read nothing would come afresh."""
        if any(shard not in self.ranks or shard not in self._states for shard in shards):
            return f" (not ranks {shards})"
        for shard in shards:
            self.ranks[shard].close()
        for shard in shards:
            world = self._shards if shard < self._shards else self._worlds[shard]
            self.ranks[shard] = self._start(shard, world)
            self._check_done(shard, self.ranks[shard].do("load", state=self._states[shard]))
            placed = self.ranks[shard].do("place")
            if shard >= self._shards and "this consumer asks for num_shards" in str(placed):
                if shard in self._leaving and len(shards) > 1:
                    # The first that came back has begun the run with the shards that stay.
                    on_their_way = (self.world.prefetch + 1) * self.world.batch
                    if problem := self._judge.refused(shard, shards[0], on_their_way):
                        raise FindingError(problem)
                self._leave(shard)
            else:
                self._check_done(shard, placed)
        self.accepted.append(operation.kind)
        return f" (ranks {shards})"

    def _operate(self, operation: Operation) -> str:
        if operation.kind in (Kind.RESIZE, Kind.SEEK):
            # A shard that nobody reads when the job is changed takes its rows along.
            while away := self._leaving.keys() & set(range(self._shards)):
                self._step(min(away))
        words = self._words(operation)
        done = self.daemon.ctl(*words, "-o", "json", check=False)
        said = f": spdlctl {' '.join(words)} -> ".replace(f"{self.directory}/", "")
        if done.returncode == REFUSED:
            return said + f"refused: {done.stderr.strip()}"
        if done.returncode != 0:
            raise FindingError(f"{said} {done.returncode}: {done.stderr}")
        self.accepted.append(operation.kind)
        return said + self._note(operation, json.loads(done.stdout))

    def _words(self, operation: Operation) -> list[str]:
        epoch = min(self._epoch(shard) for shard in self.ranks)
        if operation.kind is Kind.RESIZE:
            return ["job", "resize", JOB, "--shards", str(operation.ranks)]
        if operation.kind is Kind.SEEK:
            to = max(0, epoch + operation.seek_epoch)
            step = operation.step if operation.number % 2 else 0
            return ["job", "seek", JOB, "--epoch", str(to), "--step", str(step)]
        if operation.kind is Kind.SKIP:
            return ["job", "seek", JOB, "--skip", str(operation.count)]
        at = operation.at
        if at == "step":
            at = f"step:{epoch + operation.epoch}/{operation.step}"
        return [
            "apply",
            "-f",
            str(self._write(self._proposed(operation))),
            "--job",
            JOB,
            "--at",
            at,
        ]

    def _proposed(self, operation: Operation) -> marked.Text:
        return dataclasses.replace(self._text, mark=operation.mark)

    def _write(self, text: marked.Text) -> pathlib.Path:
        path = self.directory / f"text-{next(self._numbers)}.yaml"
        return marked.write_pipeline(path, self.directory / "images", text)

    def _note(self, operation: Operation, answer: dict[str, Any]) -> str:
        """Keeps what the daemon has done, and says it."""
        if operation.kind is Kind.SEEK:
            last = answer["seeks"][-1]
            seek = Seek(_place(last["from"]), _place(last["to"]))
            problem = self._judge.changes(seek.start)
            self._judge.sought(seek)
            said = f"from {seek.start} to {seek.to}"
            self._dealt_in.clear()
        elif operation.kind in (Kind.SKIP, Kind.RESIZE):
            at = _place(answer["dealt_from"])
            said = f"from {at} on"
            problem = ""
            if operation.kind is Kind.SKIP:
                problem = self._judge.changes(at)
                self._judge.skips(at, operation.count * self._shards * self.world.batch)
            elif answer["num_shards"] != self._shards:
                problem = self._judge.changes(at)
                before, self._shards = self._shards, answer["num_shards"]
                for shard in range(before, self._shards):
                    self._dealt_in[shard] = at
                    if left := self._leaving.get(shard):
                        self._judge.comes_back(shard, left, at)
                for shard in range(self._shards, before):
                    self._leaving[shard] = at
                self._fill()
        else:
            self._text = self._proposed(operation)
            self._texts[answer["pipeline"]["version"]] = self._text
            [job] = answer["jobs"]
            at = _place(job["from"])
            said = f"v{job['version']} from {at} on"
            problem = self._judge.changes(at)
        if problem:
            raise FindingError(f"{self.story[-1]}: {said}: {problem}")
        return said


def _place(answer: dict[str, Any]) -> StepAt:
    return int(answer.get("epoch", 0)), int(answer.get("step", 0))

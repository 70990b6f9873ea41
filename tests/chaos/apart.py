# SPDX-License-Identifier: Apache-2.0
"""Ranks of one job that each go at their own pace, epochs apart, and an operator who changes it.

Also in lockstep, where the world says so. chaos/turns.py judges: at each turn all ranks have the same
step and version, its rows come once, and no change begins at a turn that a rank was given.
"""

from __future__ import annotations

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
from chaos.turns import Judge, place_of
from chaos.victim import DaemonVictim

MOST_TURNS_APART = 60
MOST_STEPS_AT_ONCE = 40
NO_SHARD = "the job was resized to"  # of the daemon to a rank whose shard is no more
OTHER_WORLD = "this consumer asks for num_shards"
# To one whose shard enters at a turn that all others have passed while no daemon heard of it.
NO_ENTRY = "it is not known any more where shard"


class Apart:
    """One run, as March is one: rounds, before which something may be done, then the judgement."""

    def __init__(self, world: World, directory: pathlib.Path) -> None:
        self.world = dataclasses.replace(world, replicas=False)
        if self.world.last == "drop":  # what it drops cannot be told from what is lost
            self.world = dataclasses.replace(self.world, last="keep")
        self.lockstep = world.replicas
        self.directory = directory
        self.story: list[str] = []
        self.steps = 0
        self.accepted: list[Kind] = []
        self._shards = 2
        self._judge = Judge(self.world.batch, self._shards)
        self._numbers = itertools.count()
        self._text = marked.Text(0, self.world.batch, self.world.last)
        self._texts = {1: self._text}
        marked.write_images(directory / "images")
        self.daemon = DaemonVictim(pipelines=[self._write(self._text)])
        self.ranks: dict[int, Stepper] = {}
        # Attaching, by shard: until a rank that was there has come to where the shard enters.
        self._waiting: dict[int, Stepper] = {}
        self._entered: dict[int, int] = {}  # by shard: the turn at which its rank came
        self._resizes = 0
        self._started: dict[int, int] = {}  # resizes before, of ranks that wait
        self._restarts = 0  # of the daemon
        self._asked: dict[int, int] = {}  # restarts when the shard was brought in, by shard
        self._states: dict[int, dict[str, Any]] = {}
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
        for rank in (*self.ranks.values(), *self._waiting.values()):
            rank.close()
        if self.directory.exists():
            (self.directory / "daemon.log").write_text(self.daemon.log())
        self.daemon.close()

    # Reading.

    def _turn(self) -> None:
        if self.lockstep:
            lowest = min(map(self._judge.next_turn, self.ranks))
            chosen = [shard for shard in sorted(self.ranks) if self._at(shard) == lowest]
            steps = 1
        else:
            chosen = [self._random.choice(sorted(self.ranks))]
            steps = self._random.randint(1, MOST_STEPS_AT_ONCE)
        for _ in range(steps):
            for shard in chosen:
                if shard in self.ranks and not self._too_far(shard):
                    self._step(shard)
        self.steps += 1

    def _at(self, shard: int) -> int:
        return self._judge.next_turn(shard)

    def _lowest(self) -> int:
        """The shard whose rank has been given the fewest turns."""
        return min(self.ranks, key=self._at)

    def _too_far(self, shard: int) -> bool:
        """The others are epochs behind: it waits, so that all come to what an operator does."""
        return self._at(shard) > self._at(self._lowest()) + MOST_TURNS_APART

    def _step(self, shard: int) -> None:
        self._step_rank(shard)
        self._fill()

    def _step_rank(self, shard: int) -> None:
        answer = self.ranks[shard].do("step")
        if "error" in answer:
            self._check_ended(shard, answer)
            return
        if problem := self._judge.given(shard, answer, self._texts):
            raise FindingError(
                f"in round {self.steps}, shard {shard} {agreement.told(answer)}: {problem}"
            )
        self._states[shard] = answer["state"]

    def _check_ended(self, shard: int, answer: dict[str, Any]) -> None:
        problem = "" if NO_SHARD in answer["message"] else "an error"
        if problem := problem or self._judge.ended(shard):
            raise FindingError(f"shard {shard}: {agreement.told(answer)}: {problem}")
        self.ranks.pop(shard).close()
        self._states.pop(shard, None)

    def _fill(self) -> None:
        """A rank for each shard that there is."""
        for shard in range(self._shards):
            if shard not in self.ranks and shard not in self._waiting:
                self._started[shard] = self._resizes
                self._waiting[shard] = self._start(shard, self._shards)
                self._waiting[shard].ask("place")
        self._let_in()

    def _let_in(self) -> None:
        """Ranks whose shards enter where another one has come to. The daemon knows of that one when it
        is attached: after a restart it reads what it has before."""
        for shard in list(self._waiting):
            entry = self._judge.entry(shard)
            there = [self._at(one) for one in self.ranks if entry > self._entered[one]]
            if entry and max(there, default=0) < entry:
                continue
            late = min(there, default=0) > entry + MOST_TURNS_APART
            if entry and not late and not self._waiting[shard].answered():
                continue
            if self._restarts > self._asked.get(shard, self._restarts):
                # The daemon waits for ranks that have not come back: they may know the place.
                self._bring_back()
            rank = self._waiting.pop(shard)
            answer = rank.answer()
            if NO_ENTRY in answer.get("message", "") and self._restarts > self._asked[shard]:
                rank.close()
                self._bring_in_again(shard, entry)
                return
            if OTHER_WORLD in answer.get("message", "") and self._resizes > self._started[shard]:
                rank.close()  # the job was resized before it came: _fill() starts another one
                continue
            self._check_done(shard, answer)
            self.ranks[shard] = rank
            self._judge.arrives(shard, entry)
            self._entered[shard] = entry

    def _bring_in_again(self, shard: int, entry: int) -> None:
        """As the message says; what was the shard's since `entry` comes to nobody. Shards behind it that
        are waited for go along."""
        self.story.append(f"shard {shard}: resized away and back")
        entries = {shard: entry}
        for other in [other for other in self._waiting if other > shard]:
            self._waiting.pop(other).close()
            entries[other] = self._judge.entry(other)
        shards = self._shards
        for count in (shard, shards):
            words = ("job", "resize", JOB, "--shards", str(count), "-o", "json")
            while (done := self.daemon.ctl(*words, check=False)).returncode == REFUSED:
                self._step_rank(self._lowest())  # not all are back yet
            self._resized(json.loads(done.stdout))
        for lacking, since in entries.items():
            self._judge.lacks(lacking, range(since, self._judge.entry(lacking)))
        self._fill()

    @staticmethod
    def _check_done(shard: int, answer: dict[str, Any]) -> None:
        if "error" in answer:
            raise FindingError(f"shard {shard}: {agreement.told(answer)}")

    def _start(self, shard: int, world: int) -> Stepper:
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
        until = max(map(self._at, self.ranks))
        while self._judge.at(until).position > 0:
            until += 1
        while self._waiting or self._at(self._lowest()) < until:
            self._step(self._lowest())
        problem = self._judge.learn(self.daemon.record(JOB))
        if problems := [problem] if problem else self._judge.incomplete(until):
            raise FindingError("\n".join(problems))

    # What is done.

    def _do(self, operation: Operation) -> None:
        kind = operation.kind
        self.story.append(f"before round {self.steps}: #{operation.number} {kind.value}")
        if kind in (Kind.KILL_DAEMON, Kind.STOP_DAEMON):
            self.story[-1] += self._restart_daemon(operation)
        elif kind is Kind.REPLACE_RANK:
            self.story[-1] += self._replace(operation, [operation.rank % MOST_RANKS])
        elif kind is Kind.REPLACE_RANKS:
            shards = sorted(self.ranks)
            self._random.shuffle(shards)
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
        self._restarts += 1
        self.accepted.append(operation.kind)
        if operation.number % 3 == 0:
            return ""
        self._bring_back()  # the job is changed only then
        self._fill()
        return ", and all come back"

    def _bring_back(self) -> None:
        """A rank that has used up what it had comes back to a daemon that was started again."""
        for shard in sorted(self.ranks):
            while shard in self.ranks and not self._attached(shard):
                self._step_rank(shard)

    def _sessions(self) -> list[int]:
        return [session["shard"] for session in self.daemon.ctl_json("get", "sessions")]

    def _attached(self, shard: int) -> bool:
        return shard in self._sessions()

    def _replace(self, operation: Operation, shards: list[int]) -> str:
        """All of them are dead before the first is back. One that has read nothing since its shard
        came would come afresh."""
        if any(shard not in self.ranks or not self._has_read(shard) for shard in shards):
            return f" (not ranks {shards})"
        if self._waiting and len(shards) == len(self.ranks):
            # One that is only on its way would find no job, and begin another run.
            return " (not while a rank waits)"
        for shard in shards:
            self.ranks[shard].close()
        for shard in shards:
            # A shard that goes was one of as many as there are at its turn.
            there = self._judge.at(self._at(shard) - 1).shards
            self.ranks[shard] = self._start(shard, self._shards if shard < self._shards else there)
            self._check_done(shard, self.ranks[shard].do("load", state=self._states[shard]))
        for shard in shards:
            placed = self.ranks[shard].do("place")
            if "error" in placed:
                self._check_ended(shard, placed)
        self._fill()
        self.accepted.append(operation.kind)
        return f" (ranks {shards})"

    def _has_read(self, shard: int) -> bool:
        return shard in self._states and self._at(shard) > self._judge.entry(shard)

    def _is_in(self, shard: int) -> bool:
        """Whether a rank reads the shard as it is in the job last."""
        entry = self._judge.entry(shard)
        return shard in self.ranks and (self._entered[shard] == entry or self._at(shard) > entry)

    def _operate(self, operation: Operation) -> str:
        if operation.kind is Kind.RESIZE:
            # A shard that nobody has read when it goes takes its rows along.
            for shard in range(operation.ranks, self._shards):
                while not self._is_in(shard):
                    self._step(self._lowest())
        words = self._words(operation)
        done = self.daemon.ctl(*words, "-o", "json", check=False)
        said = f": spdlctl {' '.join(words)} -> ".replace(f"{self.directory}/", "")
        if done.returncode == REFUSED and "cannot be" not in done.stderr:
            return said + f"refused: {done.stderr.strip()}"
        if done.returncode != 0:  # all ranks go through the same places
            raise FindingError(f"{said} {done.returncode}: {done.stderr}")
        self.accepted.append(operation.kind)
        return said + self._note(operation, json.loads(done.stdout))

    def _words(self, operation: Operation) -> list[str]:
        epoch = self._judge.at(self._at(self._lowest())).epoch
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

    def _resized(self, answer: dict[str, Any]) -> None:
        """The daemon has done it, if it was not so before."""
        problem = self._judge.learn(self.daemon.record(JOB))
        if answer["num_shards"] != self._shards:
            problem = problem or self._judge.announced("shards", place_of(answer["dealt_from"]))
        if problem:
            raise FindingError(f"a resize to {answer['num_shards']}: {problem}")
        for shard in range(self._shards, answer["num_shards"]):
            self._asked[shard] = self._restarts
        self._resizes += 1
        self._shards = answer["num_shards"]

    def _note(self, operation: Operation, answer: dict[str, Any]) -> str:
        """Keeps what the daemon has done, and says it."""
        problem = self._judge.learn(self.daemon.record(JOB))
        if operation.kind is Kind.SEEK:
            said = "all ranks are past it already"
            if answer["seeks"]:
                last = answer["seeks"][-1]
                said = f"from {place_of(last['from'])} to {place_of(last['to'])}"
                problem = problem or self._judge.announced("seek", place_of(last["from"]))
        elif operation.kind in (Kind.SKIP, Kind.RESIZE):
            at = place_of(answer["dealt_from"])
            said = f"from {at} on"
            if operation.kind is Kind.SKIP:
                problem = problem or self._judge.announced("skip", at)
            else:
                self._resized(answer)
                self._fill()
        else:
            self._text = self._proposed(operation)
            self._texts[answer["pipeline"]["version"]] = self._text
            [job] = answer["jobs"]
            said = f"v{job['version']} from {place_of(job['from'])} on"
        if problem:
            raise FindingError(f"{self.story[-1]}: {said}: {problem}")
        return said

# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one job that take each step together, as an all-reduce makes them, and an operator."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import subprocess
from collections.abc import Sequence
from typing import Any

import daemon as daemon_module
from chaos import agreement, marked
from chaos.marked import PIPELINE
from chaos.operations import Kind, Operation, World
from chaos.stepper import Stepper
from chaos.victim import DaemonVictim

JOB = "run"
TIMEOUT_S = 30.0  # of a loader: less than the watchdog of who waits for it, and it says what for
REFUSED = 1  # spdlctl's exit code
DAEMON_KINDS = (Kind.KILL_DAEMON, Kind.STOP_DAEMON)
RANK_KINDS = (Kind.REPLACE_RANK, Kind.REPLACE_RANK_BY_OTHER)


class FindingError(Exception):
    """Something that must hold does not."""


class March:
    """One run. `story` has what was done and what the daemon said to it. Not thread-safe; close()
    ends all its processes."""

    def __init__(self, world: World, directory: pathlib.Path) -> None:
        self.world = world
        self.directory = directory
        self.story: list[str] = []
        self.steps = 0
        self.accepted: list[Kind] = []
        self._numbers = itertools.count()
        self._account = agreement.Account(world.last)
        self._text = marked.Text(0, world.batch, world.last)
        self._texts = {1: self._text}  # by version
        marked.write_images(directory / "images")
        self.daemon = DaemonVictim(pipelines=[self._write(self._text)])
        self.ranks: list[Stepper] = []
        self._states: list[dict[str, Any]] = []

    def run(self, operations: Sequence[Operation], steps: int) -> None:
        self.daemon.start()
        self.ranks = [self._start_rank(rank) for rank in range(2)]
        due = list(operations)
        for before in range(steps):
            while due and due[0].before == before:
                self._do(due.pop(0))
            self._step()

    def scene(self) -> str:
        """What the daemon says of the job, for who reads of a failure."""
        if not self.daemon.running:
            return f"the daemon does not run:\n{self.daemon.log()[-3000:]}"
        asked = [("get", "jobs"), ("get", "jobs", JOB), ("get", "sessions")]
        return "\n".join(self.daemon.ctl(*words, check=False).stdout for words in asked)

    def close(self) -> None:
        for rank in self.ranks:
            rank.close()
        if self.directory.exists():
            (self.directory / "daemon.log").write_text(self.daemon.log())
        self.daemon.close()

    # A step of both.

    def _step(self) -> None:
        answers = self._ask_both("step")
        problem = agreement.disagreement(answers, self.world.replicas, self._texts)
        problem = problem or self._account.problem(answers, self.world.replicas)
        if problem:
            told = [f"  rank {rank}: {agreement.told(one)}" for rank, one in enumerate(answers)]
            raise FindingError("\n".join([f"at step {self.steps} of the run: {problem}", *told]))
        self._states = [answer["state"] for answer in answers]
        self.steps += 1

    def _ask_both(self, what: str, **arguments: Any) -> list[dict[str, Any]]:
        for rank in self.ranks:
            rank.ask(what, **arguments)
        return [rank.answer() for rank in self.ranks]

    def _start_rank(self, rank: int) -> Stepper:
        if self.world.replicas:
            place = {"shard": 0, "num_shards": 1, "replicas": 2, "replica": rank}
        else:
            place = {"rank": rank, "world_size": 2}
        return Stepper(
            environment={"PYTHONPATH": str(daemon_module.build_dir() / "python")},
            pipeline=PIPELINE,
            address=self.daemon.address,
            job=JOB,
            prefetch=self.world.prefetch,
            timeout=TIMEOUT_S,
            **place,
        )

    # What is done to them.

    def _do(self, operation: Operation) -> None:
        kind = operation.kind
        self.story.append(f"before step {self.steps}: #{operation.number} {kind.value}")
        if kind in DAEMON_KINDS:
            said = self._restart_daemon(kind)
        elif kind in RANK_KINDS:
            said = self._replace_rank(operation)
        elif kind is Kind.VARS:
            said = self._apply_vars(operation)
        else:
            said = self._operate(operation)
        self.story[-1] += said
        if (status := self.daemon.died()) is not None:
            raise FindingError(f"the daemon ended by itself with {status}")

    def _restart_daemon(self, kind: Kind) -> str:
        if kind is Kind.KILL_DAEMON:
            self.daemon.kill()
        elif (status := self.daemon.stop()) != 0:
            raise FindingError(f"the daemon ended with {status} on SIGTERM")
        self.daemon.start()
        self.accepted.append(kind)
        return ""

    def _replace_rank(self, operation: Operation) -> str:
        if not self._states:
            return " (not before the first step)"
        rank = operation.rank
        giver = rank if operation.kind is Kind.REPLACE_RANK else 1 - rank
        self.ranks[rank].close()
        self.ranks[rank] = self._start_rank(rank)
        if operation.number % 2 == 0:
            self.ranks[rank].do("place")  # as who asks for len(loader) first
        self.ranks[rank].do("load", state=self._states[giver])
        self.accepted.append(operation.kind)
        return f" (rank {rank})"

    def _apply_vars(self, operation: Operation) -> str:
        value, at = operation.mark, self._point(operation)
        # Whether another schema begins at what is `now` depends on how much is made by then.
        answers = self._ask_both(
            "apply", vars=marked.variable(value), at=at, allow_schema_change=True
        )
        told = [answer.get("message", answer) for answer in answers]
        refused = ["error" in answer for answer in answers]
        if refused[0] != refused[1] or (told[0] != told[1] and not refused[0]):
            raise FindingError(f"loader.apply at {at} is answered {told[0]} and {told[1]}")
        if not refused[0]:
            self.accepted.append(operation.kind)
        return f" mark {value} at {at} -> {told[0]}"

    def _operate(self, operation: Operation) -> str:
        words = self._words(operation)
        done = self.daemon.ctl(*words, "-o", "json", check=False)
        said = f": spdlctl {' '.join(words)} -> ".replace(f"{self.directory}/", "")
        if done.returncode == REFUSED:
            return said + f"refused: {done.stderr.strip()}"
        if done.returncode != 0:
            raise FindingError(f"{said} {done.returncode}: {done.stderr}")
        self.accepted.append(operation.kind)
        return said + self._note(operation, done)

    def _words(self, operation: Operation) -> list[str]:
        """What is said to spdlctl."""
        epoch, _ = self._account.at
        if operation.kind is Kind.SEEK:
            to = max(0, epoch + operation.seek_epoch)
            return ["job", "seek", JOB, "--epoch", str(to), "--step", str(operation.step)]
        if operation.kind is Kind.SKIP:
            return ["job", "seek", JOB, "--skip", str(operation.count)]
        change = ["--job", JOB, "--at", self._point(operation), "--allow-schema-change"]
        if operation.kind is Kind.ROLLBACK:
            return ["rollback", PIPELINE, *change]
        return ["apply", "-f", str(self._write(self._proposed(operation))), *change]

    def _point(self, operation: Operation) -> str:
        """Of a change, as --at and at= want it."""
        if operation.at != "step":
            return operation.at
        return f"step:{self._account.at[0] + operation.epoch}/{operation.step}"

    def _proposed(self, operation: Operation) -> marked.Text:
        if operation.kind is Kind.TUNE:
            return dataclasses.replace(self._text, concurrency=operation.count)
        if operation.kind is Kind.APPLY_BATCH:
            return dataclasses.replace(self._text, mark=operation.mark, batch=operation.batch)
        return dataclasses.replace(self._text, mark=operation.mark)

    def _write(self, text: marked.Text) -> pathlib.Path:
        path = self.directory / f"text-{next(self._numbers)}.yaml"
        return marked.write_pipeline(path, self.directory / "images", text)

    def _note(self, operation: Operation, done: subprocess.CompletedProcess[str]) -> str:
        """Keeps what the daemon has done, and says it."""
        answer = json.loads(done.stdout)
        if operation.kind is Kind.SEEK:
            epoch, _ = self._account.at
            self._account.sought((max(0, epoch + operation.seek_epoch), operation.step))
            return "done"
        if operation.kind is Kind.SKIP:
            place = answer["dealt_from"]
            self._account.skipped(place["epoch"])
            return f"from {place['epoch']}/{place['step']} on"
        if operation.kind is Kind.ROLLBACK:
            self._text = self._texts.get(answer["repeats"], self._text)
        else:
            self._text = self._proposed(operation)
        self._texts[answer["pipeline"]["version"]] = self._text
        changed = [
            f"v{job['version']} from {job['from']['epoch']}/{job['from']['step']} on"
            + (", tuned" if job["tuned"] else "")
            for job in answer["jobs"]
        ]
        return ", ".join(changed) or "no job"

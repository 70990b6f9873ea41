# SPDX-License-Identifier: Apache-2.0
"""Ranks of one job that take each step together, as an all-reduce makes them, and an operator."""

from __future__ import annotations

import copy
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
RESTART_KINDS = (Kind.RESTART, Kind.RESTART_BY_LEDGER)
LOOP_KINDS = (Kind.SET_EPOCH, Kind.SKIP_STEPS)


class FindingError(Exception):
    """Something that must hold does not."""


@dataclasses.dataclass(frozen=True)
class Past:
    """As it was after a step."""

    states: list[dict[str, Any]]  # by rank
    account: agreement.Account
    sought: int  # so many seeks of the job had been asked for


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
        self._history: list[Past] = []
        self._by_ledger = False  # they have begun by it, and are yet to say where
        # Steps that their loops have left out since then; none: they have gone to an epoch.
        self._skipped_since: int | None = 0
        # Where one begins that has no state: it may die before it is given one.
        self._starts: set[agreement.StepAt] = {(0, 0)}
        self._sought: list[agreement.StepAt] = []  # where seeks of the job lead, in order

    def run(self, operations: Sequence[Operation], steps: int) -> None:
        self.daemon.start()
        self.ranks = self._start_ranks(2)
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

    # A step of all.

    def _step(self) -> None:
        answers = self._ask_all("step")
        if self._by_ledger and "error" not in answers[0]:
            if "end" in answers[0]:
                self._go_on_from_end(answers[0]["end"] - 1)
            else:
                self._go_on_from((answers[0]["epoch"], answers[0]["step"]))
            self._by_ledger = False
        problem = agreement.disagreement(answers, self.world.replicas, self._texts)
        problem = problem or self._account.problem(answers, self.world.replicas)
        if problem:
            told = [f"  rank {rank}: {agreement.told(one)}" for rank, one in enumerate(answers)]
            raise FindingError("\n".join([f"at step {self.steps} of the run: {problem}", *told]))
        states = [answer["state"] for answer in answers]
        self._history.append(Past(states, copy.deepcopy(self._account), len(self._sought)))
        self.steps += 1

    def _ask_all(self, what: str, **arguments: Any) -> list[dict[str, Any]]:
        for rank in self.ranks:
            rank.ask(what, **arguments)
        return [rank.answer() for rank in self.ranks]

    def _start_ranks(self, count: int, **options: Any) -> list[Stepper]:
        return [self._start_rank(rank, count, **options) for rank in range(count)]

    def _start_rank(self, rank: int, count: int, **options: Any) -> Stepper:
        if self.world.replicas:
            place = {"shard": 0, "num_shards": 1, "replicas": count, "replica": rank}
        else:
            place = {"rank": rank, "world_size": count}
        return Stepper(
            environment={"PYTHONPATH": str(daemon_module.build_dir() / "python")},
            pipeline=PIPELINE,
            address=self.daemon.address,
            job=JOB,
            prefetch=self.world.prefetch,
            timeout=TIMEOUT_S,
            **place,
            **options,
        )

    # What is done to them.

    def _do(self, operation: Operation) -> None:
        kind = operation.kind
        self.story.append(f"before step {self.steps}: #{operation.number} {kind.value}")
        if kind in DAEMON_KINDS:
            said = self._restart_daemon(kind)
        elif kind in RANK_KINDS:
            said = self._replace_rank(operation)
        elif kind in RESTART_KINDS:
            said = self._restart_ranks(operation)
        elif kind in LOOP_KINDS:
            said = self._change_loop(operation)
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
        count = len(self.ranks)
        rank = operation.rank % count
        giver = rank if operation.kind is Kind.REPLACE_RANK else (rank + 1) % count
        # Loops may have gone elsewhere before their first step.
        gone = self._history or self._account.at != (0, 0)
        state = self.ranks[giver].do("state") if gone else None
        self.ranks[rank].close()
        self.ranks[rank] = self._start_rank(rank, count)
        # Not while the others have yet to ask for the ledger: a fresh one would begin another run.
        if operation.number % 2 == 0 and not self._by_ledger:
            self.ranks[rank].do("place")  # as who asks for len(loader) first
        if state is not None:
            self.ranks[rank].do("load", **state)
        self.accepted.append(operation.kind)
        return f" (rank {rank})"

    def _restart_ranks(self, operation: Operation) -> str:
        if not self._history:
            return " (not before the first step)"
        count = len(self.ranks) if self.world.replicas else operation.ranks
        if operation.kind is Kind.RESTART_BY_LEDGER and not self._job().get("ledger"):
            return " (nobody has come back)"
        for rank in self.ranks:
            rank.close()
        self.accepted.append(operation.kind)
        if operation.kind is Kind.RESTART_BY_LEDGER:
            self.ranks = self._start_ranks(len(self.ranks), start="ledger")
            self._by_ledger, self._skipped_since = True, 0
            return ""
        self.ranks = self._start_ranks(count)
        del self._history[max(1, len(self._history) - operation.back) :]
        past = self._history[-1]
        for rank in self.ranks:
            rank.do("load", state=past.states[0])
        # A state from before a seek goes along with it once more.
        self._account.back_to(past.account, past.account.targets + self._sought[past.sought :])
        self._by_ledger = False
        return f" ({count}, of {operation.back} steps ago: {past.account.at})"

    def _go_on_from(self, at: agreement.StepAt) -> None:
        """The first step, from where the ledger had the job. The account is as it was there."""
        if self._skipped_since is None:
            self._account.back_to(self._account, self._sought)
            return
        self._go_on_from_ledger((at[0], at[1] - self._skipped_since))
        if self._skipped_since > 0:
            self._account.skip_steps(self._skipped_since)
            if self._account.at != at:  # a seek leads to where these were left out
                self._account.sought(at)

    def _go_on_from_ledger(self, at: agreement.StepAt) -> None:
        known = [
            number
            for number, past in enumerate(self._history)
            if past.account.at == at or past.account.skips_to(at)
        ]
        last = self._history[-1].account
        if at in self._sought:
            self._account.back_to(self._account, self._sought)
        elif known:
            del self._history[known[-1] + 1 :]
            self._account.back_to(self._history[-1].account, self._sought)
        elif at == self._account.at:  # where their loops have gone
            self._account.back_to(self._account, self._sought)
        elif at == (last.at[0] + 1, 0):
            self._account.back_to(last, self._sought)
            if problem := self._account.ended(at):
                raise FindingError(problem)
        elif at in self._starts:
            self._account.back_to(self._account, self._sought)
            self._account.sought(at)
        else:
            raise FindingError(f"they begin at {at}, where they never were")

    def _go_on_from_end(self, epoch: int) -> None:
        """Where the ledger had the job behind the last step of this epoch."""
        known = [number for number, past in enumerate(self._history) if past.account.at[0] == epoch]
        if known:
            del self._history[known[-1] + 1 :]
        past = self._history[-1].account if known else self._account
        self._account.back_to(past, self._sought)

    def _job(self) -> dict[str, Any]:
        """What the daemon says of it; empty: it knows of none."""
        found = self.daemon.ctl("get", "jobs", JOB, "-o", "json", check=False)
        return json.loads(found.stdout) if found.returncode == 0 else {}

    def _change_loop(self, operation: Operation) -> str:
        """By all ranks alike, before they take a step."""
        epoch, _ = self._account.at
        if operation.kind is Kind.SKIP_STEPS:
            self._check_done(self._ask_all("skip_steps", steps=operation.count))
            self._account.skip_steps(operation.count)
            if self._skipped_since is not None:
                self._skipped_since += operation.count
            said = f" {operation.count}"
        else:
            to = max(0, epoch + operation.seek_epoch)
            self._check_done(self._ask_all("set_epoch", epoch=to))
            self._account.set_epoch(to)
            self._skipped_since = None
            said = f" {to}"
        self.accepted.append(operation.kind)
        return said

    def _check_done(self, answers: list[dict[str, Any]]) -> None:
        for rank, answer in enumerate(answers):
            if "error" in answer:
                raise FindingError(f"rank {rank}: {agreement.told(answer)}")

    def _apply_vars(self, operation: Operation) -> str:
        value, at = operation.mark, self._point(operation)
        # Whether another schema begins at what is `now` depends on how much is made by then.
        answers = self._ask_all(
            "apply", vars=marked.variable(value), at=at, allow_schema_change=True
        )
        told = [answer.get("message", answer) for answer in answers]
        refused = ["error" in answer for answer in answers]
        if self._history and self._history[-1].account.at != self._account.at:
            # Which steps nobody has begun changes while one loop after the other goes elsewhere.
            told = [answer.get("version", answer) for answer in answers]
        if (any(refused) and not all(refused)) or (
            not any(refused) and told != told[:1] * len(told)
        ):
            raise FindingError(f"loader.apply at {at} is answered {told}")
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
            to = (max(0, epoch + operation.seek_epoch), operation.step)
            self._starts.add(to)
            self._account.sought(to)
            self._sought.append(to)
            return "done"
        if operation.kind is Kind.SKIP:
            place = answer["dealt_from"]
            self._account.skipped(place["epoch"], operation.count)
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

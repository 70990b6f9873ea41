# SPDX-License-Identifier: Apache-2.0
"""A daemon and the ranks of its jobs, through everything that befalls them."""

from __future__ import annotations

import argparse
import collections
import contextlib
import heapq
import itertools
import json
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator

import kinds
import on_gpu
import runners
from chaos import footprint, images, ledger, schedule
from chaos.footprint import Footprint
from chaos.schedule import Blow, Event
from chaos.victim import DaemonVictim, RankVictim

PIPELINE, STILL = "chaos", "still"
TICK_S = 0.01
# Of silence: nobody was handed anything.
WATCHDOG_S = 45.0
# Of a job that nobody can change just now.
NOT_YET = (
    "has not come back yet",
    "none of its consumers has come back yet",
    "is not read from this daemon",
    "there is no job",  # all its ranks were away at once
)


class PromiseError(Exception):
    """Something that must hold does not."""


class Ordeal:
    """One run, by the options of run.py. Not thread-safe; close() ends all its processes."""

    def __init__(self, options: argparse.Namespace, directory: pathlib.Path) -> None:
        self.options = options
        self.directory = directory
        self.done: collections.Counter[Blow] = collections.Counter()
        self.died_at_a_failpoint = 0
        self.epochs = 0
        self._pending: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._stop_file = directory / "stop"
        self._flipped = [False] * options.jobs
        self._swaps: list[list[ledger.Swap] | None] = [[] for _ in range(options.jobs)]
        self._arena_bytes = 0  # of one consumer
        self._written = 0  # bytes of all records
        self._progress_at = time.monotonic()

        images.write_images(directory / "images", options.items)
        for flipped in (False, True):
            images.write_pipeline(
                self._pipeline_file(flipped),
                directory / "images",
                PIPELINE,
                flipped=flipped,
                kind=kinds.named(options.kind),
                code=options.code,
            )
        # Of what a daemon has when nobody reads: without processes that come and go.
        images.write_pipeline(directory / "still.yaml", directory / "images", STILL, flipped=False)
        self.daemon = DaemonVictim(pipelines=self._pipeline_files())
        self.ranks = [
            [
                RankVictim(
                    directory,
                    f"job{job}-rank{rank}",
                    {
                        "pipeline": PIPELINE,
                        "job": self._job_name(job),
                        "rank": rank,
                        "world_size": options.ranks,
                        "address": self.daemon.address,
                        "stop": str(self._stop_file),
                        "work_ms": options.work_ms,
                    },
                )
                for rank in range(options.ranks)
            ]
            for job in range(options.jobs)
        ]

    def run(self) -> None:
        self.daemon.start()
        before = self._footprint()
        for rank in self._all_ranks():
            rank.start()
        self._await(
            lambda: all(rank.size() for rank in self._all_ranks()), "every rank's first batch"
        )
        self._note_first_versions()
        self._limit_arenas()
        self._suffer()
        self._calm_down()
        self._await(lambda: not any(rank.running for rank in self._all_ranks()), "the ranks' ends")
        for rank in self._all_ranks():
            if rank.process.returncode != 0:
                self._rank_failed(rank)
        self._await(lambda: self.daemon.ctl_json("get", "sessions") == [], "the sessions' ends")
        self._await(lambda: not runners.of(self.daemon.address), "the ends of what runs functions")
        problems = [*self._record_problems(), *self._leaks(before), *self._other_pixels()]
        status = self.daemon.stop()
        if status != 0:
            problems.append(f"the daemon ended with {status} on SIGTERM")
        left = footprint.processes_that_name(self.directory, self.daemon.directory)
        problems += [f"left behind: process {line}" for line in left]
        if problems:
            raise PromiseError("\n".join(problems))

    def close(self) -> None:
        for rank in self._all_ranks():
            rank.kill()
        if self.directory.exists():
            (self.directory / "daemon.log").write_text(self.daemon.log())
        self.daemon.close()

    # The blows.

    def _suffer(self) -> None:
        counts = {
            Blow.KILL_DAEMON: self.options.kills,
            Blow.STOP_DAEMON: self.options.terms,
            Blow.FREEZE_DAEMON: self.options.freezes,
            Blow.KILL_RANK: self.options.consumer_kills,
            Blow.FREEZE_RANK: self.options.freezes,
            Blow.SWAP: self.options.swaps,
            Blow.KILL_RUNNER: self.options.runner_kills,
        }
        events = schedule.draw(
            self.options.seed,
            self.options.seconds,
            counts,
            self.options.jobs,
            self.options.ranks,
            self.options.failpoints,
        )
        start = time.monotonic()
        for event in events:
            self._in(start + event.at_s, lambda event=event: self._strike(event))
        while self._pending:
            self._tick()

    def _strike(self, event: Event) -> None:
        self.done[event.blow] += 1
        if event.blow is Blow.KILL_RANK or event.blow is Blow.FREEZE_RANK:
            self._strike_rank(event, self.ranks[event.job][event.rank])
            return
        if event.blow is Blow.KILL_RUNNER:
            self._strike_runner(event)
            return
        if not self.daemon.running:
            self._start_daemon("")
        if event.blow is Blow.KILL_DAEMON:
            self.daemon.kill()
            self._after(event.lasts_s, lambda: self._start_daemon(event.failpoints))
        elif event.blow is Blow.STOP_DAEMON:
            self.daemon.signal(signal.SIGCONT)
            # A daemon that was to die at a failpoint may do so now.
            if self.daemon.stop() not in (0, -signal.SIGKILL):
                raise PromiseError("the daemon did not end well on SIGTERM")
            self._after(event.lasts_s, lambda: self._start_daemon(event.failpoints))
        elif event.blow is Blow.FREEZE_DAEMON:
            daemon_pid = self.daemon.pid
            self.daemon.signal(signal.SIGSTOP)
            self._after(event.lasts_s, lambda: self._thaw_daemon(daemon_pid))
        else:
            self._swap(event)

    def _strike_rank(self, event: Event, rank: RankVictim) -> None:
        if rank.killed:
            rank.start()
        if event.blow is Blow.KILL_RANK:
            self._check_rank(rank)
            rank.kill()
            self._after(event.lasts_s, lambda: rank.start() if rank.killed else None)
        else:
            process = rank.process
            process.send_signal(signal.SIGSTOP)
            self._after(event.lasts_s, lambda: process.send_signal(signal.SIGCONT))

    def _strike_runner(self, event: Event) -> None:
        """A supervisor, what it forks the others from, or one of these."""
        found = runners.of(self.daemon.address)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(sorted(found)[event.draw % len(found)], signal.SIGKILL)

    def _start_daemon(self, failpoints: str) -> None:
        if self.daemon.running:
            return
        self.daemon.arm(failpoints)
        try:
            self.daemon.start()
        except RuntimeError as error:
            if f"ended with {-signal.SIGKILL}" not in str(error) or not failpoints:
                raise PromiseError(f"the daemon does not start again: {error}") from None
            self.died_at_a_failpoint += 1
            self._start_daemon("")

    def _thaw_daemon(self, pid: int) -> None:
        if self.daemon.running and self.daemon.pid == pid:
            self.daemon.signal(signal.SIGCONT)

    def _swap(self, event: Event) -> None:
        job = event.job
        at = self._swap_point(event)
        flipped = not self._flipped[job]
        self._thaw_daemon(self.daemon.pid)  # who is to do so else waits for the answer here
        done = self.daemon.ctl(
            *("apply", "-f", self._pipeline_file(flipped), "--job", self._job_name(job)),
            *("--at", at, "-o", "json"),
            check=False,
        )
        if any(words in done.stderr for words in NOT_YET):
            # Its ranks are between two connections: the same again once they are back.
            self._after(0.2, lambda: self._swap(event) if self.daemon.running else None)
        elif done.returncode == 0:
            self._flipped[job] = flipped
            [swap] = json.loads(done.stdout)["jobs"]
            place = {"epoch": 0, "step": 0, **swap["from"]}
            known = self._swaps[job]
            if known is not None:
                start = (int(place["epoch"]), int(place["step"]))
                known.append(ledger.Swap(start, int(swap["version"]), flipped))
        elif self.options.failpoints:
            self._swaps[job] = None  # it may have taken place: what is in force is not known
        elif not (at.startswith("step:") and "passed" in done.stderr):
            raise PromiseError(f"apply --at {at} for job {job}: {done.stderr.strip()}")

    def _swap_point(self, event: Event) -> str:
        """What --at is to say: what the event wants, but behind a swap that still lies ahead."""
        known = self._swaps[event.job] or []
        reached = self._reached(event.job)
        pending = known[-1].at[0] if known else 0
        if not event.swap_at.startswith("step:+"):
            return event.swap_at if pending <= reached else f"step:{pending + 1}/0"
        ahead, step = event.swap_at.removeprefix("step:+").split("/")
        return f"step:{max(pending, reached) + int(ahead)}/{step}"

    # What goes on meanwhile.

    def _in(self, at: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._pending, (at, next(self._numbers), what))

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        self._in(time.monotonic() + seconds, what)

    def _tick(self) -> None:
        """Does what is due, then sees that nobody died by itself and that somebody comes on."""
        while self._pending and self._pending[0][0] <= time.monotonic():
            heapq.heappop(self._pending)[2]()
        for rank in self._all_ranks():
            self._check_rank(rank)
        self._check_daemon()
        written = sum(rank.size() for rank in self._all_ranks())
        if written != self._written:
            self._written, self._progress_at = written, time.monotonic()
        elif time.monotonic() - self._progress_at > WATCHDOG_S:
            raise PromiseError(
                f"no rank was handed anything for {WATCHDOG_S:.0f} s\n{self._scene()}"
            )
        time.sleep(TICK_S)

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 2 * WATCHDOG_S
        while not holds():
            if time.monotonic() > deadline:
                raise PromiseError(f"never came: {what}\n{self._scene()}")
            self._tick()

    def _check_rank(self, rank: RankVictim) -> None:
        if rank.killed or rank.running:
            return
        # The daemon's lives may be too short for a rank that is new: a launcher starts it again.
        if rank.process.returncode == 1 and rank.found_no_daemon():
            rank.start()
        # A rank ends well when it was told to, and not before.
        elif rank.process.returncode != 0 or not self._stop_file.exists():
            self._rank_failed(rank)

    def _rank_failed(self, rank: RankVictim) -> None:
        raise PromiseError(f"{rank.name} ended with {rank.process.returncode}:\n{rank.tail()}")

    def _check_daemon(self) -> None:
        status = self.daemon.died()
        if status is None:
            return
        if status != -signal.SIGKILL or not self.options.failpoints:
            raise PromiseError(
                f"the daemon ended by itself with {status}:\n{self.daemon.log()[-3000:]}"
            )
        self.died_at_a_failpoint += 1
        self._start_daemon("")

    def _kill_all_ranks(self) -> None:
        """As a trainer's crash does, and so often that one arena lost each time would be too many."""
        for _ in range(1 + self._spare_arenas() // len(list(self._all_ranks()))):
            sizes = {}
            for rank in self._all_ranks():
                rank.kill()
                sizes[rank] = rank.size()
            for rank in self._all_ranks():
                rank.start()
            self._await(
                lambda sizes=sizes: all(rank.size() > size for rank, size in sizes.items()),
                "batches for all ranks after all were killed",
            )

    def _calm_down(self) -> None:
        """The last daemon is without failpoints, and ranks stop before an epoch to come."""
        if self.daemon.armed:
            self.daemon.kill()
        self._start_daemon("")
        for rank in self._all_ranks():
            if rank.killed:
                rank.start()
        self._kill_all_ranks()
        # Far enough ahead for none to be there already when it looks.
        self.epochs = 3 + max(map(self._reached, range(self.options.jobs)))
        written = self._stop_file.with_suffix(".new")
        written.write_text(str(self.epochs))
        written.rename(self._stop_file)

    # What is left.

    def _footprint(self) -> Footprint:
        """After a consumer came and went."""
        self.daemon.ctl(*on_gpu.consume(STILL, "--batches", "4"))
        self._await_quiet()
        return footprint.measure(self.daemon)

    def _leaks(self, before: Footprint) -> list[str]:
        """What the daemon does not give back before the watchdog's time is over."""
        # Arenas of consumers that have left are pooled, at most as many as there were at once.
        pooled = 2 * self.options.jobs * self.options.ranks
        if self.options.device == "cuda":
            pooled *= 2  # what is copied to the GPU, and what lies beside it
        deadline = time.monotonic() + WATCHDOG_S
        self._footprint()
        while True:
            after = footprint.measure(self.daemon)
            found = footprint.leaks(before, after, pooled, self._arena_bytes)
            found += self._gpu_leaks()
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(TICK_S)

    def _other_pixels(self) -> list[str]:
        """What the daemon's own decoder and libjpeg-turbo did not agree upon; since its last start."""
        different = self.daemon.ctl_json("status")["jpeg"]["different"]
        return [f"{different} images were decoded to other pixels"] if different else []

    def _gpu_leaks(self) -> list[str]:
        """What is there although nobody reads: the daemon is the one process that has the driver."""
        if self.options.device != "cuda":
            return []
        held = on_gpu.counts(self.directory / "gpu-ledger").held()
        return [
            f"{count} {name} on the GPU that nobody reads on"
            for name, count in held.items()
            if (name, count) != ("processes", 1)
        ]

    def _await_quiet(self) -> None:
        deadline = time.monotonic() + WATCHDOG_S
        while self.daemon.ctl_json("get", "sessions"):
            if time.monotonic() > deadline:
                raise PromiseError(f"sessions without a consumer\n{self._scene()}")
            time.sleep(TICK_S)

    def _spare_arenas(self) -> int:
        """So many may be there beside one for each rank: of ranks that were just killed."""
        consumers = self.options.jobs * self.options.ranks
        versions = 2 if self.options.swaps else 1
        return consumers * (2 * versions - 1) + 2

    def _limit_arenas(self) -> None:
        """With one more lost than are to spare, a rank is refused."""
        sessions = self.daemon.ctl_json("get", "sessions")
        self._arena_bytes = max(int(session["arena_bytes"]) for session in sessions)
        if self.options.device == "cuda":  # of which a session shows what lies beside the GPU
            used = int(self.daemon.ctl_json("status")["arena_used"])
            self._arena_bytes = -(-used // len(sessions))
        most = self.options.jobs * self.options.ranks + self._spare_arenas()
        self.daemon.configure(
            pipelines=self._pipeline_files(),
            settings={"arena": {"budget": most * self._arena_bytes + self._runner_bytes()}},
        )
        self.daemon.restart()

    def _runner_bytes(self) -> int:
        """What rows at functions may take: two children of each pipeline, and two that came since."""
        return 8 * (4 << 20) if self.options.code else 0

    def _note_first_versions(self) -> None:
        for job, swaps in enumerate(self._swaps):
            [first, *_] = ledger.read(self.ranks[job][0].log)
            assert swaps is not None
            swaps.append(ledger.Swap((0, 0), first.version, False))

    def _record_problems(self) -> list[str]:
        return [
            problem
            for job, ranks in enumerate(self.ranks)
            for problem in ledger.problems_of_job(
                f"job {job}",
                [ledger.read(rank.log) for rank in ranks],
                self.options.items * (images.PARTS if self.options.code else 1),
                self.epochs,
                self._swaps[job],
            )
        ]

    def _scene(self) -> str:
        """For whoever reads why it failed."""
        if not self.daemon.running:
            return "the daemon is not running"
        self.daemon.signal(signal.SIGCONT)
        shown = [self.daemon.ctl("get", what, check=False) for what in ("jobs", "sessions")]
        states = [
            f"{rank.name}: {'killed' if rank.killed else rank.process.poll()}, "
            f"{ledger.last(rank.log)}"
            for rank in self._all_ranks()
        ]
        return "\n".join([*(one.stdout + one.stderr for one in shown), *states])

    def _all_ranks(self) -> Iterator[RankVictim]:
        return itertools.chain.from_iterable(self.ranks)

    def _reached(self, job: int) -> int:
        """The furthest epoch that a rank has written down."""
        last = [ledger.last(rank.log) for rank in self.ranks[job]]
        return max((entry.epoch for entry in last if entry is not None), default=0)

    def _pipeline_file(self, flipped: bool) -> pathlib.Path:
        return self.directory / ("flipped.yaml" if flipped else "plain.yaml")

    def _pipeline_files(self) -> list[pathlib.Path]:
        return [self._pipeline_file(False), self.directory / "still.yaml"]

    @staticmethod
    def _job_name(job: int) -> str:
        return f"run-{job}"

# SPDX-License-Identifier: Apache-2.0
"""A rank as a process of its own, steered by lines of JSON: what a test kills is a real consumer."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import logging.handlers
import os
import pathlib
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import kinds
import on_gpu
from integration import forks

WATCHDOG_S = 60.0


class Rank:
    """One process with one loader, started at once; its owner ends it by close().

    ask() and answer() are apart, so that several ranks can wait at the same time. An answer is a
    dict; a batch has epoch, step, indices, valid, labels, sum and shape of its images, whether they
    are on_gpu, version and `at`, the monotonic time at which next() returned. An epoch's end is {"end": True}, an error
    {"error": its class, "message": …}. Who has other commands names another `program`.
    """

    program = __file__

    def __init__(self, *, environment: dict[str, str] | None = None, **loader: Any) -> None:
        self._process = forks.start(
            self.program, json.dumps(loader), {**os.environ, **(environment or {})}
        )
        self._pending = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, what: str, **arguments: Any) -> None:
        self._process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def answered(self, within_s: float = 0.0) -> bool:
        return b"\n" in self._pending or bool(
            select.select([self._process.stdout], [], [], within_s)[0]
        )

    def answer(self) -> dict[str, Any]:
        deadline = time.monotonic() + WATCHDOG_S
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            assert left > 0 and self.answered(left), f"rank {self.pid} does not answer"
            more = os.read(self._process.stdout.fileno(), 65536)
            assert more, f"rank {self.pid} ended with {self._process.wait()}"
            self._pending += more
        line, self._pending = self._pending.split(b"\n", 1)
        return json.loads(line)

    def do(self, what: str, **arguments: Any) -> dict[str, Any]:
        self.ask(what, **arguments)
        return self.answer()

    def next(self, **arguments: Any) -> dict[str, Any]:
        """One batch; an error of the loader's fails the test."""
        batch = self.do("next", **arguments)
        assert "error" not in batch, batch
        return batch

    def take(self, count: int) -> list[dict[str, Any]]:
        batches = [self.next() for _ in range(count)]
        assert not any("end" in batch for batch in batches), "the epoch ended before"
        return batches

    def rest_of_epoch(self) -> list[dict[str, Any]]:
        batches = []
        while "end" not in (batch := self.next()):
            batches.append(batch)
        return batches

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL for this process alone: what it forked lives on."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ends it and all that it forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def group(start_rank: Callable[..., Rank], daemon: Any, size: int, **options: Any) -> list[Rank]:
    """The ranks of job 'run'."""
    return [
        start_rank(daemon, **{"job": "run", "rank": rank, "world_size": size, **options})
        for rank in range(size)
    ]


def in_lockstep(ranks: Sequence[Rank], steps: int) -> list[list[dict[str, Any]]]:
    """Each takes so many steps, no one ahead of the others, as ranks that work on one model do."""
    batches: list[list[dict[str, Any]]] = [[] for _ in ranks]
    for _ in range(steps):
        for rank in ranks:
            rank.ask("next")
        for of_one, rank in zip(batches, ranks, strict=True):
            batch = rank.answer()
            assert "error" not in batch and "end" not in batch, batch
            of_one.append(batch)
    return batches


def indices(batches: list[dict[str, Any]]) -> list[int]:
    """The items of all rows, in order."""
    return [index for batch in batches for index in batch["indices"]]


def rows_of(field: Any) -> Iterator[bytes]:
    for row in field:
        yield row.encode() if isinstance(row, str) else bytes(memoryview(row))


class Served:
    """The child's side of Rank: do_x() answers to x."""

    def __init__(self, options: dict[str, Any]) -> None:
        import spdld

        self.loader = spdld.Loader(options.pop("pipeline"), **on_gpu.loader_options(options))
        self._epoch: Any = None
        self._held: list[Any] = []
        self._warned = logging.handlers.BufferingHandler(1000)
        logging.getLogger("spdld").addHandler(self._warned)

    def serve(self) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            try:
                answer = getattr(self, "do_" + command.pop("do"))(**command)
            except Exception as error:
                answer = {"error": type(error).__name__, "message": str(error)}
            print(json.dumps(answer), flush=True)

    def take(self) -> Any:
        """The next batch, as numpy arrays; None: the epoch's end."""
        if self._epoch is None:
            self._epoch = iter(self.loader)
        batch = next(self._epoch, None)
        if batch is None:
            self._epoch = None
            return None
        return on_gpu.Shown(batch)

    def do_next(self, hold: bool = False) -> dict[str, Any]:
        batch = self.take()
        if batch is None:
            return {"end": True}
        at = time.monotonic()
        kinds.check(batch)
        if hold:
            self._held.append(batch)
        return {
            "epoch": batch.epoch,
            "step": batch.step,
            "indices": batch.indices.tolist(),
            "valid": batch.valid.tolist(),
            "labels": batch["label"].tolist() if "label" in batch else None,
            "sum": int(batch["image"].sum(dtype="int64")) if "image" in batch else None,
            "shape": list(batch["image"].shape) if "image" in batch else None,
            "on_gpu": "image" in batch and batch.is_on_gpu("image"),
            "version": batch.pipeline_version,
            "at": at,
        }

    def do_digest(self) -> dict[str, Any]:
        """The next batch: where it is, and a digest over all bytes of each field."""
        batch = self.take()
        if batch is None:
            return {"end": True}
        digests = {
            name: hashlib.sha256(b"".join(rows_of(batch[name]))).hexdigest() for name in batch
        }
        place = {"epoch": batch.epoch, "step": batch.step, "indices": batch.indices.tolist()}
        return {**place, "digests": digests, "on_gpu": batch.is_on_gpu("image")}

    def do_warnings(self) -> dict[str, Any]:
        return {"warnings": [record.getMessage() for record in self._warned.buffer]}

    def do_sums(self) -> dict[str, Any]:
        """Of the held batches as they are now."""
        return {"sums": [int(batch["image"].sum(dtype="int64")) for batch in self._held]}

    def do_drop(self) -> dict[str, Any]:
        self._held.clear()
        return {}

    def do_place(self) -> dict[str, Any]:
        len(self.loader)  # attaches
        return {
            "shard": self.loader.shard,
            "num_shards": self.loader.num_shards,
            "steps": len(self.loader),
            "address": self.loader.address,
        }

    def do_stats(self) -> dict[str, Any]:
        return self.loader.stats()

    def do_state(self) -> dict[str, Any]:
        return {"state": self.loader.state_dict()}

    def do_load(self, state: dict[str, Any]) -> dict[str, Any]:
        self.loader.load_state_dict(state)
        self._epoch = None
        return {}

    def do_apply(self, vars: dict[str, Any], at: str, **options: Any) -> dict[str, Any]:
        return self.loader.apply(vars, at, **options)._asdict()

    def do_break_off(self) -> dict[str, Any]:
        """What comes next is of the following epoch."""
        self._epoch = None
        return {}

    def do_fork(self) -> dict[str, Any]:
        """A child that inherits the sockets and lives until it is killed."""
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        return {"pid": child}

    def do_close(self) -> dict[str, Any]:
        self._held.clear()
        self.loader.close()
        return {}


if __name__ == "__main__":
    Served(json.loads(sys.argv[1])).serve()

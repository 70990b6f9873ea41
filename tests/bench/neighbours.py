# SPDX-License-Identifier: Apache-2.0
"""./dev bench neighbours: how long a bad neighbour keeps a job waiting.

A paced job of one rank is watched beside a healthy neighbour, a job of the same weight that reads
as fast as it can, and then beside one of the bad ones, in turns. The figure is the longest time
between two batches of the watched job; the ratio is that beside the bad neighbour to that beside
the healthy one, medians of the runs. Bad neighbours get only the processor time that nobody else
wants: what they take of the machine themselves is not the daemon's doing.

  log      nobody reads the daemon's stderr, a pipe, while strangers send garbage that it tells of
  queries  six processes that read nothing and ask for statistics and classes without a pause
  arena    a job that attaches, reads a batch and leaves, with a posix arena of --arena-gib
  sparse   a job of the same weight whose images are 64 sparse files of 900 MB
  hung-CALL, links-CALL
           a job whose storage hangs in mid-epoch, in lookup, getattr, open or read; its images lie
           there, or are links on a local disk that lead there. Compared with the watched job alone.
           Root's alone, who may mount.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import hung_mount
import machine
import paced_job
from daemon import Daemon
from paced_job import Rank, gaps
from pipelines import TRAINING

QUERIERS = 6
ROW_BYTES = 224 * 224 * 3 * 4
SLOTS = 6  # of one consumer with four credits
SPARSE_FILES, SPARSE_BYTES = 64, 900_000_000
SETTLE_S = 1.0  # both jobs have begun, and the pace is found


def write_pipeline(
    daemon: Daemon,
    root: pathlib.Path,
    name: str,
    seed: int,
    batch: int,
    on_error: str = "fail",
) -> None:
    """Of its own seed: jobs of one order would share what they read."""
    text = TRAINING.format(root=root, batch=batch, on_error=on_error)
    text = text.replace("pipeline: bench", f"pipeline: {name}").replace("seed: 1", f"seed: {seed}")
    text = text.replace(f"batch: {{size: {batch}}}", f"batch: {{size: {batch}, last: pad}}")
    file = daemon.directory / f"{name}.yaml"
    file.write_text(text)
    daemon.ctl("apply", "-f", file)


def rank(daemon: Daemon, pipeline: str, step_s: float, job: str) -> Rank:
    one = Rank(step_s, pipeline=pipeline, address=daemon.address, job=job, rank=0, world_size=1)
    one.wait_for_first()
    return one


@contextlib.contextmanager
def healthy(daemon: Daemon, job: str) -> Iterator[None]:
    neighbour = rank(daemon, "neighbour", 0, job)
    try:
        yield
        neighbour.stop()
        neighbour.given()
    finally:
        neighbour.kill()


@contextlib.contextmanager
def looping(work: Callable[[], None]) -> Iterator[None]:
    stopping = threading.Event()

    def loop() -> None:
        while not stopping.is_set():
            work()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def send_garbage(daemon: Daemon) -> None:
    """Several connections, each of which costs the daemon a line of its log."""
    for _ in range(20):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect(str(daemon.runtime_dir / "data.sock"))
            with contextlib.suppress(OSError):
                stranger.send(b"garbage" * 10)
    time.sleep(0.02)


@contextlib.contextmanager
def unread_log(daemon: Daemon, job: str, _: argparse.Namespace) -> Iterator[None]:
    with healthy(daemon, job), looping(lambda: send_garbage(daemon)):
        yield


@contextlib.contextmanager
def roles(count: int, role: str, *words: str) -> Iterator[None]:
    """Processes that do this until the end of `with`."""
    others = [
        subprocess.Popen(
            [sys.executable, __file__, "--role", role, *words],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(count)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            if not other.stdout.readline():
                raise RuntimeError(f"'{role}' ended with {other.wait()}")
        yield
        for other in others:
            if other.poll() is not None:
                raise RuntimeError(f"'{role}' ended with {other.returncode}")
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextlib.contextmanager
def queries(daemon: Daemon, _: str, __: argparse.Namespace) -> Iterator[None]:
    with roles(QUERIERS, "queries", daemon.address):
        yield


@contextlib.contextmanager
def arena(daemon: Daemon, _: str, arguments: argparse.Namespace) -> Iterator[None]:
    batch = int(arguments.arena_gib * (1 << 30) / SLOTS / ROW_BYTES)
    with roles(1, "arena", daemon.address, str(batch)):
        yield


@contextlib.contextmanager
def nobody(_: Daemon, __: str) -> Iterator[None]:
    yield


@contextlib.contextmanager
def begun(daemon: Daemon, pipeline: str, job: str) -> Iterator[Rank]:
    one = Rank(0, pipeline=pipeline, address=daemon.address, job=job, rank=0, world_size=1)
    try:
        yield one
    finally:
        one.kill()


@contextlib.contextmanager
def sparse(daemon: Daemon, job: str, arguments: argparse.Namespace) -> Iterator[None]:
    root = daemon.directory / "sparse"
    if not root.exists():
        (root / "class").mkdir(parents=True)
        image = next(path for path in arguments.data.rglob("*") if path.is_file())
        paths = [root / f"class/{number:02}.jpg" for number in range(SPARSE_FILES)]
        for path in paths:
            shutil.copyfile(image, path)
        # A pipeline of which no batch can be made is refused: they become huge once it is applied.
        write_pipeline(daemon, root, "sparse", 3, arguments.batch, "replace")
        for path in paths:
            path.write_bytes(b"\xff\xd8\xff")
            os.truncate(path, SPARSE_BYTES)
    with roles(1, "sparse", daemon.address, job):
        yield


@contextlib.contextmanager
def hung(
    daemon: Daemon, job: str, arguments: argparse.Namespace, *, call: int, linked: bool
) -> Iterator[None]:
    at = daemon.directory / f"mount-{job}"
    at.mkdir()
    root = daemon.directory / f"links-{job}" if linked else at
    mount = hung_mount.HungMount(arguments.data, at, valid_s=0)
    try:
        if linked:
            for path in arguments.data.rglob("*"):
                if path.is_file():
                    link = root / path.relative_to(arguments.data)
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(at / path.relative_to(arguments.data))
        write_pipeline(daemon, root, job, 3, arguments.batch)
        with begun(daemon, job, job) as neighbour:
            neighbour.wait_for_first()
            mount.hang(call=call)
            yield
            if mount.waiting == 0:
                raise RuntimeError("nothing hung")
            mount.let_go()
    finally:
        mount.close()


CALLS = {
    "lookup": hung_mount.LOOKUP,
    "getattr": hung_mount.GETATTR,
    "open": hung_mount.OPEN,
    "read": hung_mount.READ,
}
BAD = {"log": unread_log, "queries": queries, "arena": arena, "sparse": sparse}
for kind, linked in (("hung", False), ("links", True)):
    BAD |= {
        f"{kind}-{name}": functools.partial(hung, call=call, linked=linked)
        for name, call in CALLS.items()
    }


def yield_processors() -> None:
    """To whoever else wants them. Where the kernel shares processors out by session (autogroup), a
    process's own niceness counts only among those of its session."""
    os.nice(19)
    autogroup = pathlib.Path("/proc/self/autogroup")
    if autogroup.exists():
        autogroup.write_text("19")


def play(role: str, words: list[str]) -> None:
    """In a process and session of its own, until it is killed."""
    import spdld

    yield_processors()

    address, *rest = words
    if role == "queries":
        with spdld.Loader("neighbour", address=address, job=f"queries-{os.getpid()}") as loader:
            next(iter(loader))
            print("begun", flush=True)
            while True:
                loader.stats()
    if role == "sparse":
        print("begun", flush=True)
        for turn in itertools.count():  # none of its rows can be made, and so its jobs end
            with (
                contextlib.suppress(spdld.PipelineError),
                spdld.Loader("sparse", address=address, job=f"{rest[0]}-{turn}") as loader,
            ):
                next(iter(loader))
    begun = False
    while True:
        with spdld.Loader(
            "neighbour", address=address, job="arena", batch_size=int(rest[0])
        ) as loader:
            if not begun:
                print("begun", flush=True)
                begun = True
            next(iter(loader))


def longest_gap(
    daemon: Daemon, name: str, step_s: float, seconds: float, beside: Any, arguments: Any
) -> float:
    watched = rank(daemon, "watched", step_s, f"watched-{name}")
    try:
        with beside(daemon, f"neighbour-{name}", *arguments):
            time.sleep(SETTLE_S)
            from_s = time.monotonic()
            time.sleep(seconds)
            until_s = time.monotonic()
            watched.stop()
            given = watched.given()
    finally:
        watched.kill()
    # A gap that is still open counts, too.
    last = max((batch.at_s for batch in given), default=from_s)
    return max([*gaps(given, from_s, until_s), until_s - last])


def capacity(daemon: Daemon, seconds: float) -> float:
    """Batches a second of the watched job alone."""
    alone = rank(daemon, "watched", 0, "capacity")
    try:
        from_s = time.monotonic()
        time.sleep(seconds)
        alone.stop()
        given = alone.given()
    finally:
        alone.kill()
    return sum(batch.at_s > from_s for batch in given) / seconds


def settings(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    if name != "arena":
        return {}
    # That of the loader before may still be on its way out.
    budget = int((2 * arguments.arena_gib + 1) * (1 << 30))
    return {"arena": {"kind": "posix", "budget": budget, "idle": "0s"}}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench neighbours", description=__doc__)
    parser.add_argument("data", type=paced_job.directory, help="a directory of images by class")
    parser.add_argument("--only", choices=BAD, action="append", help="of the bad neighbours")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6, help="of one watch")
    parser.add_argument("--batch", type=int, default=16, help="rows of a step")
    parser.add_argument("--share", type=float, default=0.3, help="of the capacity that is wanted")
    parser.add_argument("--arena-gib", type=float, default=4)
    return parser.parse_args()


def measure(name: str, arguments: argparse.Namespace) -> float:
    beside = BAD[name]
    alone = name.startswith(("hung", "links"))
    reference = nobody if alone else healthy
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon(settings=settings(name, arguments)))
        if name == "log":
            reader, writer = os.pipe()
            stack.callback(os.close, reader)
            daemon.start(log_to=writer)
            os.close(writer)
        else:
            daemon.start()
        write_pipeline(daemon, arguments.data, "watched", 1, arguments.batch)
        write_pipeline(daemon, arguments.data, "neighbour", 2, arguments.batch)
        step_s = 1 / (arguments.share * capacity(daemon, arguments.seconds))
        good, bad = [], []
        for run in range(arguments.runs):
            good.append(
                longest_gap(daemon, f"good-{run}", step_s, arguments.seconds, reference, ())
            )
            bad.append(
                longest_gap(daemon, f"bad-{run}", step_s, arguments.seconds, beside, (arguments,))
            )
    ratio = statistics.median(bad) / statistics.median(good)
    each = " ".join(
        f"{one * 1e3:.0f}/{other * 1e3:.0f}" for one, other in zip(bad, good, strict=True)
    )
    print(
        f"{name:<13} step {step_s * 1e3:5.1f} ms   longest gap {statistics.median(bad) * 1e3:7.1f} ms,"
        f" {'alone' if alone else 'beside a healthy one'} {statistics.median(good) * 1e3:7.1f} ms   ratio {ratio:5.2f}"
        f"   ({each})",
        flush=True,
    )
    return ratio


def main() -> None:
    if sys.argv[1:2] == ["--role"]:
        play(sys.argv[2], sys.argv[3:])
        return
    arguments = parse()
    print(machine.line(), flush=True)
    for name in arguments.only or BAD:
        measure(name, arguments)


if __name__ == "__main__":
    main()

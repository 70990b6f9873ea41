# SPDX-License-Identifier: Apache-2.0
"""./dev bench governor: how much a training's step is lengthened by the daemon that feeds it.

The trainer is a process in a session of its own, whose thread needs a part of each step (60 %) in
processor time and sleeps for the rest, as one does that launches kernels and waits for them. It
takes a batch a step from a daemon in a session of its own; the figure is the time of a step, with
the wait for its batch. It is watched

  alone    without a daemon,
  beside   while another job of that daemon makes batches as fast as all cores can,
  ahead    while the daemon works for this trainer alone, whose batches are made ahead of need,

the last two with `executor.nice: 0`, by which the daemon gives way to nobody, and with the
defaults, in turns; and all of that with the kernel's autogroups on and off, where they may be
switched: that takes root, is of the whole machine, and is undone at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import machine
import paced_job
from daemon import Daemon
from neighbours import healthy, write_pipeline

AUTOGROUPS = pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled")
SETTLE_S = 1.0  # both jobs have begun, and the trainer has found its pace
GIVES_WAY: dict[str, dict[str, Any]] = {"nice 0": {"executor": {"nice": 0}}, "defaults": {}}


def train(step_s: float, busy: float, loader: dict[str, Any]) -> None:
    """In a process of its own, until stdin is closed; then it prints how long each step took."""
    import spdld

    steps = []
    with contextlib.ExitStack() as stack:
        epochs = (
            stack.enter_context(spdld.Loader("watched", **loader)) if loader else range(1 << 60)
        )
        print("begun", flush=True)
        batches = iter(epochs)
        while not paced_job.is_told_to_stop():
            from_s = time.perf_counter()
            batch = next(batches, None)  # which is kept for the step
            if batch is None:
                batches = iter(epochs)
                batch = next(batches)
            until_s = time.thread_time() + busy * step_s
            while time.thread_time() < until_s:
                pass
            time.sleep((1 - busy) * step_s)
            steps.append(time.perf_counter() - from_s)
    print(json.dumps(steps))


def steps(arguments: argparse.Namespace, daemon: Daemon | None, job: str = "") -> list[float]:
    """Seconds of each of a new trainer's steps."""
    loader = {"address": daemon.address, "job": job} if daemon else {}
    options = [arguments.step / 1e3, arguments.busy, loader]
    with subprocess.Popen(
        [sys.executable, __file__, "--train", json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as trainer:
        assert trainer.stdin is not None and trainer.stdout is not None
        if not trainer.stdout.readline():
            raise RuntimeError(f"the trainer ended with {trainer.wait()}")
        time.sleep(SETTLE_S + arguments.seconds)
        trainer.stdin.close()
        taken = json.loads(trainer.stdout.read())
    return taken[int(SETTLE_S * 1e3 / arguments.step) :]


def percentiles(taken: list[float]) -> tuple[float, float]:
    return statistics.median(taken), statistics.quantiles(taken, n=100)[98]


def measure(arguments: argparse.Namespace) -> None:
    """All of it, as the kernel is set now."""
    ratios: dict[str, list[tuple[float, float]]] = {}
    alone = []
    with contextlib.ExitStack() as stack:
        daemons = {}
        for name, settings in GIVES_WAY.items():
            daemon = stack.enter_context(Daemon(settings=settings)).start()
            write_pipeline(daemon, arguments.data, "watched", 1, arguments.batch)
            write_pipeline(daemon, arguments.data, "neighbour", 2, arguments.batch)
            daemons[name] = daemon
        print(f"  {daemons['defaults'].ctl('status').stdout.splitlines()[1].strip()}", flush=True)
        for run in range(arguments.runs):
            of_alone = percentiles(steps(arguments, None))
            alone.append(of_alone)
            for name, daemon in daemons.items():
                with healthy(daemon, f"beside-{run}"):
                    beside = percentiles(steps(arguments, daemon, f"watched-{run}"))
                ahead = percentiles(steps(arguments, daemon, f"ahead-{run}"))
                for load, of in (("beside", beside), ("ahead", ahead)):
                    ratios.setdefault(f"{load}, {name}", []).append(
                        (of[0] / of_alone[0], of[1] / of_alone[1])
                    )
    p50, p99 = (statistics.median(of) * 1e3 for of in zip(*alone, strict=True))
    print(f"  {'alone':<18} p50 {p50:6.1f} ms   p99 {p99:6.1f} ms")
    for what, of in ratios.items():
        p50, p99 = (statistics.median(one) for one in zip(*of, strict=True))
        each = " ".join(f"{one:.2f}" for _, one in of)
        print(f"  {what:<18} p50 x {p50:5.2f}   p99 x {p99:5.2f}   ({each})", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        train(*json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(prog="./dev bench governor", description=__doc__)
    parser.add_argument("data", type=paced_job.directory, help="a directory of images by class")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of one watch")
    parser.add_argument("--step", type=float, default=30, help="milliseconds of a step")
    parser.add_argument("--busy", type=float, default=0.6, help="part of it that needs a core")
    parser.add_argument("--batch", type=int, default=16, help="rows of a step")
    arguments = parser.parse_args()
    print(machine.line(), flush=True)
    if not AUTOGROUPS.exists():
        print("this kernel has no autogroups")
        return measure(arguments)
    before = AUTOGROUPS.read_text()
    # So that SIGTERM undoes it, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for word, value in (("on", "1"), ("off", "0")):
            if value != before.strip():
                try:
                    AUTOGROUPS.write_text(value)
                except OSError as failure:
                    print(f"autogroups {word}: not measured: {failure}")
                    continue
            print(f"autogroups {word}", flush=True)
            measure(arguments)
    finally:
        if AUTOGROUPS.read_text() != before:
            AUTOGROUPS.write_text(before)


if __name__ == "__main__":
    main()

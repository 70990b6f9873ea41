# SPDX-License-Identifier: Apache-2.0
"""./dev bench sharing: what several consumers of one daemon cost it.

Three questions, the first two answered by the daemon's own CPU time (/proc) while `spdlctl consume`
reads: two jobs that need the same batches beside one; four replicas of a shard beside one consumer;
and how the pool is divided between two jobs that both want more than there is, of images and of
rows of 512 bytes. The sides are interleaved; medians and spreads are of as many rounds as asked for.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "rows"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import machine
import rows_sides
from daemon import Daemon, build_dir
from pipelines import write_training


def start_consumer(
    daemon: Daemon, *arguments: str, pipeline: str = "bench"
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [build_dir() / "bin/spdlctl", "--address", daemon.address, "consume", pipeline, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(consumers: list[subprocess.Popen[str]]) -> None:
    said = [consumer.communicate()[0] for consumer in consumers]
    for consumer, output in zip(consumers, said, strict=True):
        if consumer.returncode != 0:
            raise RuntimeError(f"a consumer ended with {consumer.returncode}: {output}")


def cost_of(daemon: Daemon, consumers: list[list[str]]) -> float:
    before = machine.cpu_s(daemon.pid)
    finish([start_consumer(daemon, *arguments) for arguments in consumers])
    return machine.cpu_s(daemon.pid) - before


class Bench:
    def __init__(self, daemon: Daemon, steps: int, rounds: int) -> None:
        self._daemon = daemon
        self._steps = steps
        self._rounds = rounds
        self._jobs = 0

    def job(self) -> str:
        self._jobs += 1
        return f"job-{self._jobs}"

    def one(self) -> list[list[str]]:
        return [["--job", self.job(), "--batches", str(self._steps)]]

    def two_jobs(self) -> list[list[str]]:
        return self.one() + self.one()

    def replicas(self, count: int) -> list[list[str]]:
        (common,) = self.one()
        common += ["--shard", "0", "--num-shards", "1", "--replicas", str(count)]
        return [[*common, "--replica", str(number)] for number in range(count)]

    def compare(self, what: str, side: Callable[[], list[list[str]]], target: float) -> None:
        """CPU of `side` beside that of one consumer, which reads as many steps."""
        ratios = []
        for number in range(self._rounds):
            sides = [("one", self.one), ("several", side)]
            if number % 2 == 1:
                sides.reverse()
            spent = {name: cost_of(self._daemon, make()) for name, make in sides}
            ratios.append(spent["several"] / spent["one"])
        show(what, ratios, f"at most {target}")

    def weights(self, pipeline: str, weight: int, seconds: float) -> None:
        """Rows of two jobs of this weight and 1 that share no batch, while both starve."""
        # A batch of light rows takes a millisecond: a consumer that is not run for as long must not
        # be without a free slot.
        prefetch = "32" if pipeline == rows_sides.PIPELINE else "4"
        ratios = []
        for _ in range(self._rounds):
            names = [self.job(), self.job()]
            for name, of_it, seed in zip(names, (weight, 1), ("11", "12"), strict=True):
                options = ("--pipeline", pipeline, "--seed", seed, "--weight", str(of_it))
                self._daemon.ctl("job", "create", name, *options)
            consumers = [
                start_consumer(
                    *(self._daemon, "--job", name, "--epochs", "100000", "--no-read"),
                    *("--prefetch", prefetch),
                    pipeline=pipeline,
                )
                for name in names
            ]
            time.sleep(1)  # both are at work
            before = self._rows(names)
            time.sleep(seconds)
            after = self._rows(names)
            for consumer in consumers:
                consumer.terminate()
                consumer.communicate()
            for name in names:
                self._daemon.ctl("delete", "job", name)
            ratios.append((after[0] - before[0]) / (after[1] - before[1]))
        what = "light rows" if pipeline == rows_sides.PIPELINE else "images"
        within = "5 %" if pipeline == rows_sides.PIPELINE else "10 %"
        show(f"{what} of weight {weight} to weight 1", ratios, f"{weight}.0, within {within}")

    def _rows(self, names: list[str]) -> list[int]:
        made = {
            stage["job"]: stage["tasks"]
            for stage in self._daemon.ctl_json("get", "stages")
            if "decode" in stage["stage"]
        }
        return [made.get(name, 0) for name in names]


def show(what: str, ratios: list[float], target: str) -> None:
    print(
        f"{what:<40} {statistics.median(ratios):6.3f}   ({min(ratios):.3f} to {max(ratios):.3f}, "
        f"{len(ratios)} rounds; target {target})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench sharing", description=__doc__)
    parser.add_argument("data", type=pathlib.Path, help="a directory of images by class")
    parser.add_argument("--steps", type=int, default=60, help="of 16 rows, that each reads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6, help="of a round of weights")
    arguments = parser.parse_args()
    with Daemon() as daemon:
        file = write_training(daemon, arguments.data.resolve(), 16, on_error="replace")
        daemon.start()
        daemon.ctl("apply", "-f", file)
        bench = Bench(daemon, arguments.steps, arguments.rounds)
        cost_of(daemon, bench.one())  # the page cache is warm
        bench.compare("CPU of two jobs to one", bench.two_jobs, 1.15)
        bench.compare("CPU of four replicas to one", lambda: bench.replicas(4), 1.05)
        daemon.ctl("apply", "-f", rows_sides.write_light(daemon))
        bench.weights("bench", 3, arguments.seconds)
        for weight in (1, 3):
            bench.weights(rows_sides.PIPELINE, weight, arguments.seconds)


if __name__ == "__main__":
    main()

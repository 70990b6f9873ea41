# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of one reader on the fake GPU: late copies, late kernels, drops, seeks and swaps.

    tests/chaos/gpu_schedules.py --seed 1 --count 30

Every pixel of a batch follows from the items that it says it has, so that a kernel that reads a slot
before it is written, or while the next batch is written there, finds other pixels. A kernel reads in
two halves, late, on one of three streams, while its batch may have been let go of. Both ways are
drawn: the daemon's copies, in memory that it shares (delivery: {device: cuda}), and the loader's own
from pinned slots; a swap leads from one to the other. Exit codes: 0 all held, 1 something did not.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import daemon as daemon_module
import numpy as np
import on_gpu
from chaos import images

PIPELINE = "streams"
ITEMS = 64
STEPS = ITEMS // images.BATCH
PER_MACHINE = 25  # schedules with one daemon and one reader, and one seed of the driver's
STREAMS = 3
LATENESS = (1, 20, 200)  # of the driver's work, in its turns
SHAPE = (images.BATCH, images.SIDE, images.SIDE, 3)
BYTES = int(np.prod(SHAPE))
MOST_PAUSE_US = 500  # of a kernel, between its halves


class Kernel:
    """Reads the content of a batch when its turn comes. Kept until its stream is through."""

    def __init__(self, gpu: Any, stream: int, address: int, batch: Any, pause_us: int) -> None:
        self._what = f"epoch {batch.epoch} step {batch.step}"
        self._items = batch.indices.tolist()
        self._found = np.zeros(SHAPE, np.uint8)
        gpu._call(
            "fake_cuda_launch_read",
            ctypes.c_void_p(stream),
            ctypes.c_uint64(address),
            ctypes.c_size_t(BYTES),
            ctypes.c_uint32(pause_us),
            ctypes.c_void_p(self._found.ctypes.data),
        )

    def check(self) -> None:
        for flipped in (False, True):
            wanted = np.stack([images.expected(item, flipped) for item in self._items])
            if np.array_equal(self._found, wanted):
                return
        raise ValueError(f"{self._what}: a kernel found other pixels than those of {self._items}")


class Schedule:
    """One loader and what is done with its batches, all of it drawn from a seed."""

    def __init__(self, gpu: Any, streams: list[int], address: str, seed: int) -> None:
        import spdld

        self._gpu, self._streams = gpu, streams
        self._draw = random.Random(seed)
        self._vars = {"device": self._draw.choice(("cpu", "cuda")), "flip": 0.0}
        self._prefetch = self._draw.choice((2, 3, 4))
        self.loader = spdld.Loader(
            PIPELINE,
            job=f"schedule-{seed}",
            vars=self._vars,
            prefetch=self._prefetch,
            address=address,
            device="cuda",
        )
        self._iterator: Any = None
        self._next = (0, 0)  # the step that is to come
        self._held: list[Any] = []
        self._kernels: list[Kernel] = []
        self._states = [self.loader.state_dict()]

    def run(self) -> None:
        acts: list[Callable[[], None]] = [self._take] * 12
        acts += [self._drop, self._drop, self._seek, self._go_back, self._skip]
        acts += [self._swap_content, self._swap_delivery]
        self._take()
        for _ in range(self._draw.randint(8, 16)):
            self._draw.choice(acts)()
        if self._draw.random() < 0.5:  # or while kernels read
            self._synchronize()
        self._iterator = None
        endings = [self._held.clear, self.loader.close]
        self._draw.shuffle(endings)
        for end in endings:
            end()
        self._synchronize()
        for kernel in self._kernels:
            kernel.check()

    def _take(self) -> None:
        if len(self._held) >= self._prefetch - 1:
            self._drop()
        if self._iterator is None:
            self._iterator = iter(self.loader)
        batch = next(self._iterator, None)
        if batch is None:
            self._iterator = None
            self._next = (self._next[0] + 1, 0)
            return self._take()
        if (batch.epoch, batch.step) != self._next:
            raise ValueError(f"{(batch.epoch, batch.step)} came, and {self._next} was to come")
        self._next = (batch.epoch, batch.step + 1)
        self._states.append(self.loader.state_dict())
        for _ in range(self._draw.randint(1, 2)):
            self._read(batch)
        ending = self._draw.random()
        if ending < 0.4:
            self._held.append(batch)
        elif ending < 0.6:
            batch.release(stream=self._draw.choice(self._streams))
        return None

    def _read(self, batch: Any) -> None:
        stream, other = self._draw.sample(self._streams, 2)
        capsule = batch["image"].__dlpack__(stream=stream)
        address = sys.modules["fake_gpu"].tensor_of(capsule).data
        pause_us = self._draw.randint(0, MOST_PAUSE_US)
        if self._draw.random() < 0.25:
            # A stream that the batch was not handed to, which the loader is told of.
            self._gpu.synchronize(stream)
            self._kernels.append(Kernel(self._gpu, other, address, batch, pause_us))
            batch.record_stream(other)
        else:
            self._kernels.append(Kernel(self._gpu, stream, address, batch, pause_us))

    def _drop(self) -> None:
        if self._held:
            batch = self._held.pop(self._draw.randrange(len(self._held)))
            self._read(batch)

    def _seek(self) -> None:
        self._iterator = None
        epoch = self._next[0] + 1
        self.loader.set_epoch(epoch)
        self._next = (epoch, 0)

    def _go_back(self) -> None:
        self._iterator = None
        state = self._draw.choice(self._states)
        self.loader.load_state_dict(state)
        self._next = (state["epoch"], state["step"])

    def _skip(self) -> None:
        epoch, step = self._next
        if self._iterator is None or step + 1 >= STEPS:
            return
        self.loader.skip_steps(1)
        self._next = (epoch, step + 1)

    def _swap_content(self) -> None:
        self._vars["flip"] = 1.0 - self._vars["flip"]
        self._apply("flip")

    def _swap_delivery(self) -> None:
        self._vars["device"] = "cpu" if self._vars["device"] == "cuda" else "cuda"
        self._apply("device")

    def _apply(self, name: str) -> None:
        at = self._draw.choice(("now", "next-epoch"))
        self.loader.apply({name: self._vars[name]}, at=at)

    def _synchronize(self) -> None:
        for stream in self._streams:
            self._gpu.synchronize(stream)


def read(address: str, first: int, count: int) -> int:
    """The reader's process."""
    gpu = on_gpu.GPU.fake
    streams = [gpu.stream() for _ in range(STREAMS)]
    faulthandler.dump_traceback_later(30 + 2 * count, exit=True)
    for seed in range(first, first + count):
        try:
            schedule = Schedule(gpu, streams, address, seed)
            schedule.run()
        except Exception as error:
            print(f"schedule {seed}: {type(error).__name__}: {error}")
            return 1
    counted = ("fake_cuda_launch_read", "cuMemcpyHtoDAsync", "cuMemMap")
    print(*map(gpu.calls, counted))
    return 0


def write_pipeline(directory: pathlib.Path) -> pathlib.Path:
    images.write_images(directory / "images", ITEMS)
    spec = {
        "pipeline": PIPELINE,
        "seed": 7,
        "vars": {"device": "cpu", "flip": 0.0},
        "source": {"files": {"root": str(directory / "images"), "pattern": "*.jpg"}},
        "shuffle": "global",
        "stages": [
            "fetch",
            "decode_image",
            {"center_crop": {"size": [images.SIDE, images.SIDE]}},
            {"random_horizontal_flip": {"p": "${flip}"}},
        ],
        "batch": {"size": images.BATCH, "layout": "NHWC"},
        "delivery": {"device": "${device}"},
    }
    file = directory / "streams.yaml"
    file.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in spec.items()))
    return file


def run_machine(directory: pathlib.Path, first: int, count: int, done: list[int]) -> str:
    """What went wrong; empty: nothing did. Adds to `done` what the reader has counted."""
    ledger = directory / f"ledger-{first}"
    lateness = LATENESS[first // PER_MACHINE % len(LATENESS)]
    environment = on_gpu.driver(ledger, seed=first, lateness=lateness)
    with daemon_module.Daemon(
        pipelines=[directory / "streams.yaml"], environment=environment
    ) as daemon:
        daemon.start()
        reader = subprocess.run(
            [sys.executable, __file__, "--read", daemon.address]
            + ["--seed", str(first), "--count", str(count)],
            env={
                **os.environ,
                **environment,
                "PYTHONPATH": str(daemon_module.build_dir() / "python"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=daemon_module.WATCHDOG_S + 2 * count,
            check=False,
        )
        if reader.returncode != 0:
            return f"{reader.stdout}(the reader ended with {reader.returncode})\n{daemon.log()[-2000:]}"
        for index, word in enumerate(reader.stdout.splitlines()[-1].split()):
            done[index] += int(word)
        try:
            daemon_module.wait_until(
                lambda: on_gpu.counts(ledger).held() == {"processes": 1}, "an empty ledger"
            )
        except AssertionError:
            return f"nobody reads, and the GPU still has {on_gpu.counts(ledger).held()}"
        if daemon.stop() != 0:
            return f"the daemon did not end well:\n{daemon.log()[-2000:]}"
    return ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--count", type=int, default=30, help="schedules, of this seed and the next"
    )
    parser.add_argument("--read", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.read:
        return read(asked.read, asked.seed, asked.count)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="spdld-schedules-", dir="/tmp"))
    began = time.monotonic()
    failed = 0
    done = [0, 0, 0]  # kernels, copies by loaders, arenas that were mapped
    try:
        write_pipeline(directory)
        for first in range(asked.seed, asked.seed + asked.count, PER_MACHINE):
            count = min(PER_MACHINE, asked.seed + asked.count - first)
            if problem := run_machine(directory, first, count, done):
                failed += 1
                print(
                    f"FAILED: {problem}\nagain: {sys.executable} {__file__} --seed {first} --count {count}"
                )
    finally:
        shutil.rmtree(directory)
    print(
        f"{asked.count} schedules in {time.monotonic() - began:.0f} s: {done[0]} kernels, {done[1]} "
        f"copies, {done[2]} arenas; {failed} machines failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

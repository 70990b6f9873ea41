# SPDX-License-Identifier: Apache-2.0
"""The same tests with batches on a GPU, which is the fake one of tests/fake_cuda.

A test that runs so has SPDLD_TEST_DEVICE=cuda in its environment and all that driver() says; its
daemons and ranks inherit both. Its pipelines are written by way of delivered(), its ranks open their
loader with loader_options() and look at a batch by Shown.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import daemon as daemon_module
import numpy as np

MODE = "SPDLD_TEST_DEVICE"
# More than each side of an image by which a row of its own is larger than the 64 KiB up to which a
# field stays in main memory; images of different sizes stay of different sizes.
MORE = 144
SIZED_OPS = ("resize", "random_resized_crop")
LATENESS = 5
_TYPES = {0: "i", 1: "u", 2: "f"}  # of DLPack

Spec = dict[str, Any]


def is_on() -> bool:
    return os.environ.get(MODE) == "cuda"


def library() -> pathlib.Path:
    return daemon_module.build_dir() / "fake_cuda" / "libcuda.so.1"


def driver(
    ledger: pathlib.Path | str, *, seed: int = 0, lateness: int = LATENESS, **more: str
) -> dict[str, str]:
    """The environment of processes that share the machine of this ledger. `more`: DEVICES="2"."""
    return {
        "LD_LIBRARY_PATH": str(library().parent),
        "FAKE_CUDA_LEDGER": str(ledger),
        "FAKE_CUDA_SEED": str(seed),
        "FAKE_CUDA_LATENESS": str(lateness),
        **{f"FAKE_CUDA_{name}": value for name, value in more.items()},
    }


@contextlib.contextmanager
def environment(ledger: pathlib.Path, seed: int) -> Iterator[None]:
    """Processes that are started meanwhile are on the fake GPU."""
    given = {MODE: "cuda", **driver(ledger, seed=seed)}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def enlarged(side: int) -> int:
    """What a side of an image is where the test says `side`."""
    return side + MORE if is_on() else side


def ahead(prefetch: int) -> int:
    """By so many steps a stream may be further ahead of its reader: the slots on the GPU."""
    return prefetch + 1 if is_on() else 0


def delivered(spec: Spec) -> Spec:
    """The pipeline as it is delivered to a GPU, with images that are large enough to go there."""
    if not is_on():
        return spec
    made = copy.deepcopy(spec)
    made["delivery"] = {"device": "cuda", **made.get("delivery", {})}
    for stage in made["stages"]:
        for op in set(SIZED_OPS).intersection(stage if isinstance(stage, dict) else ()):
            size = stage[op]["size"]
            stage[op]["size"] = [enlarged(s) if isinstance(s, int) else s for s in size]
    return made


def loader_options(options: dict[str, Any]) -> dict[str, Any]:
    return {"device": "cuda", **options} if is_on() else options


def consume(*options: str) -> tuple[str, ...]:
    """`spdlctl consume` of somebody who reads where the pipelines are delivered to."""
    return ("consume", *options, *(("--device", "cuda") if is_on() else ()))


class Counts(ctypes.Structure):
    """What the living processes of a ledger hold: FakeCudaCounts of fake_cuda.h."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "processes",
            "contexts",
            "device_bytes",
            "registrations",
            "registered_bytes",
            "host_allocations",
            "streams",
            "events",
            "left_behind",
            "handles",
            "reservations",
            "mapped_ranges",
            "shared_bytes",
        )
    ]

    def held(self) -> dict[str, int]:
        """Without what is not there."""
        values = {name: getattr(self, name) for name, _ in self._fields_}
        return {name: value for name, value in values.items() if value}


def counts(ledger: pathlib.Path | str) -> Counts:
    """All 0 if no process has begun it yet."""
    fake = ctypes.CDLL(str(library()))
    found = Counts()
    fake.fake_cuda_read_ledger(os.fsencode(ledger), ctypes.byref(found))
    return found


class Gpu:
    """The GPU cuda:0 of this process, begun at the first field that is read from there."""

    def __init__(self) -> None:
        self._fake: Any = None
        self._stream = 0

    def read(self, field: Any) -> np.ndarray:
        """A field as the stream that it is handed to finds it."""
        fake = self.fake
        capsule = field.__dlpack__(stream=self._stream)
        tensor = sys.modules["fake_gpu"].tensor_of(capsule)
        fake.synchronize(self._stream)
        dtype = np.dtype(f"{_TYPES[tensor.code]}{tensor.bits // 8}")
        return fake.read(tensor.data + tensor.byte_offset, tuple(field.shape), dtype)

    @property
    def fake(self) -> Any:
        if self._fake is None:
            sys.path.append(str(daemon_module.REPOSITORY / "client/python/tests"))
            import fake_gpu

            self._fake = fake_gpu.FakeGpu()
            self._stream = self._fake.stream()
        return self._fake


GPU = Gpu()


class Shown(Mapping[str, Any]):
    """A batch as numpy arrays, wherever its fields lie; all else of it is as it was.

    A field on a GPU is read anew each time: a slot that was written to meanwhile shows.
    """

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __getitem__(self, name: str) -> Any:
        value = self.batch[name]
        if not self.is_on_gpu(name):
            return value
        return [GPU.read(row) for row in value] if isinstance(value, list) else GPU.read(value)

    def is_on_gpu(self, name: str) -> bool:
        return self.batch.device != "cpu" and self.batch._core.on_device(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.batch)

    def __len__(self) -> int:
        return len(self.batch)

    def __contains__(self, name: object) -> bool:
        return name in self.batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

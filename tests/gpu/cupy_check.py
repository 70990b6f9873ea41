# SPDX-License-Identifier: Apache-2.0
"""cupy_check.py SOURCE_SERVER: shows what docs/gpu.md says of batches that become cupy's arrays.

One line of a table for each claim, on the first GPU, with the made-up batches of source_server;
exits with the number of claims that do not hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import cupy
import numpy as np
from claims import PAGE, Checks, Claim, Holds, ask, is_of, others_among

LATE = np.int64(20_000_000)  # cycles, about 10 ms
SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
}
"""


def stamps_of(image: cupy.ndarray) -> cupy.ndarray:
    """The numbers that the image's pages hold, read on the current stream."""
    return cupy.ascontiguousarray(image.reshape(-1, PAGE)[:, :8]).view(cupy.int64).ravel()


class CupyChecks(Checks):
    def claims(self) -> Sequence[Claim]:
        return [
            self.dropped_before_it_is_read,
            self.pointers,
            self.array_interface,
            self.recorded_stream,
        ]

    def dropped_before_it_is_read(self) -> str:
        """cupy.from_dlpack() is ready for the current stream, and stays for work that is late"""
        spin = cupy.RawKernel(SPIN, "spin")
        stream = cupy.cuda.Stream(non_blocking=True)
        read: list[cupy.ndarray] = []
        with self.open() as loader, stream:
            for batch in itertools.islice(loader, 60):
                spin((1,), (1,), (LATE,))
                read.append(stamps_of(cupy.from_dlpack(batch["image"])))
                del batch
            stream.synchronize()
            way = loader.stats()["delivery"]
            if way != self._way:
                return f"the way is {way}"
            return others_among(read)

    def pointers(self) -> str:
        """cupy.from_dlpack() gives the memory itself"""
        with self.open() as loader, cupy.cuda.Stream(non_blocking=True):
            for step, batch in enumerate(itertools.islice(loader, 20)):
                at = batch["image"].__cuda_array_interface__["data"][0]
                images = [cupy.from_dlpack(batch["image"]) for _ in range(2)]
                if [image.data.ptr for image in images] != [at, at]:
                    return f"step {step} is a copy"
                if any(not is_of(stamps_of(image), step) for image in images):
                    return f"step {step} is another"
        return ""

    def array_interface(self) -> str:
        """cupy.asarray() takes __cuda_array_interface__ without a copy, writable or not"""
        with self.open() as loader, cupy.cuda.Stream(non_blocking=True):
            for step, batch in enumerate(itertools.islice(loader, 20)):
                at, read_only = batch["image"].__cuda_array_interface__["data"]
                image = cupy.asarray(batch["image"])
                if image.data.ptr != at:
                    return f"step {step} is a copy"
                if not is_of(stamps_of(image), step):
                    return f"step {step} is another"
        if read_only != (self._way == "cuda ipc"):
            return f"the interface says read-only={read_only}"
        return Holds("it is read-only, which cupy leaves to you" if read_only else "")

    def recorded_stream(self) -> str:
        """record_stream() takes cupy's stream, and keeps a batch for it"""
        spin = cupy.RawKernel(SPIN, "spin")
        stream = cupy.cuda.Stream(non_blocking=True)
        read: list[cupy.ndarray] = []
        with self.open() as loader, stream:
            for batch in itertools.islice(loader, 60):
                image = cupy.asarray(batch["image"])  # handed to the legacy default stream
                spin((1,), (1,), (LATE,))
                read.append(stamps_of(image))
                batch.record_stream(stream)
                del batch, image  # nothing else holds them
            stream.synchronize()
            return others_among(read)


def main() -> int:
    cupy.cuda.Device(0).use()
    broken = ask("cupy", CupyChecks)
    print(f"\ncupy {cupy.__version__}")
    return broken


if __name__ == "__main__":
    raise SystemExit(main())

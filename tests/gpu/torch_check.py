# SPDX-License-Identifier: Apache-2.0
"""torch_check.py SOURCE_SERVER: shows what docs/gpu.md says of torch's tensors and streams.

One line of a table for each claim, on the first GPU, with the made-up batches of source_server;
exits with the number of claims that do not hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import spdld
import torch
from claims import BATCH_BYTES, PAGE, Checks, Claim, ask, is_of, others_among

LATE = 20_000_000  # cycles, about 10 ms


def stamps_of(image: torch.Tensor) -> torch.Tensor:
    """The numbers that the image's pages hold, read on the current stream."""
    return image.reshape(-1, PAGE)[:, :8].contiguous().view(torch.int64).view(-1)


class TorchChecks(Checks):
    def claims(self) -> Sequence[Claim]:
        return [
            self.batches_that_are_dropped_before_they_are_read,
            self.another_stream,
            self.a_second_stream,
            self.dlpack,
            self.array_interface,
            self.capture,
            self.memory,
        ]

    def batches_that_are_dropped_before_they_are_read(self) -> str:
        """values arrive on torch's current stream, and stay for work that is late"""
        stream = torch.cuda.Stream()
        read: list[torch.Tensor] = []
        with self.open("torch") as loader, torch.cuda.stream(stream):
            for batch in itertools.islice(loader, 60):
                torch.cuda._sleep(LATE)
                read.append(stamps_of(batch["image"]))
                del batch
            stream.synchronize()
            way = loader.stats()["delivery"]
        if way != self._way:
            return f"the way is {way}"
        return others_among(read)

    def another_stream(self) -> str:
        """record_stream() keeps a batch for a stream that it was not handed to"""
        other = torch.cuda.Stream()
        read: list[torch.Tensor] = []
        with self.open("torch") as loader:
            for batch in itertools.islice(loader, 60):
                image = batch["image"]
                other.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(other):
                    torch.cuda._sleep(LATE)
                    read.append(stamps_of(image))
                batch.record_stream(other)
                del batch, image  # nothing else holds them
            other.synchronize()
        return others_among(read)

    def a_second_stream(self) -> str:
        """a tensor that is taken again is ready for the stream that is current then"""
        other = torch.cuda.Stream()
        read: list[torch.Tensor] = []
        with self.open("torch") as loader:
            for batch in itertools.islice(loader, 60):
                _ = batch["image"].shape
                with torch.cuda.stream(other):
                    torch.cuda._sleep(LATE)
                    read.append(stamps_of(batch["image"]))
                del batch
            other.synchronize()
        return others_among(read)

    def dlpack(self) -> str:
        """torch.from_dlpack() gives the memory itself, on the current stream"""
        stream = torch.cuda.Stream()
        with self.open() as loader, torch.cuda.stream(stream):
            for step, batch in enumerate(itertools.islice(loader, 20)):
                image = torch.from_dlpack(batch["image"])
                again = torch.from_dlpack(batch["image"])
                if image.device != torch.device("cuda:0") or image.data_ptr() != again.data_ptr():
                    return f"a tensor on {image.device}, at {image.data_ptr():#x}"
                if not is_of(stamps_of(image), step):
                    return f"step {step} is another"
        return ""

    def array_interface(self) -> str:
        """torch.as_tensor() takes __cuda_array_interface__, if it may be written to"""
        with self.open() as loader:
            for step, batch in enumerate(itertools.islice(loader, 20)):
                try:
                    image = torch.as_tensor(batch["image"], device="cuda:0")
                except TypeError as error:
                    return "" if self._way == "cuda ipc" else str(error)
                if not is_of(stamps_of(image), step):
                    return f"step {step} is another"
        return "" if self._way == "pinned" else "it took memory that may only be read"

    def capture(self) -> str:
        """a captured stream is refused, a graph of a copy is right"""
        with self.open("torch") as loader:
            feed = iter(loader)
            image = next(feed)["image"]
            static = torch.empty_like(image)
            stamps = torch.empty(BATCH_BYTES // PAGE, dtype=torch.int64, device="cuda:0")
            graph = torch.cuda.CUDAGraph()
            batch = next(feed)
            refused = False
            _ = batch["image"]  # known to the batch, which must refuse all the same
            with torch.cuda.graph(graph):
                try:
                    batch["image"]
                except spdld.LeaseError:
                    refused = True
                stamps.copy_(stamps_of(static))
            if not refused:
                return "the captured stream was not refused"
            for step in range(1, 20):
                static.copy_(batch["image"])
                graph.replay()
                if not is_of(stamps, step):
                    return f"step {step} is another"
                batch = next(feed)
        return ""

    def memory(self) -> str:
        """batches that were let go of leave torch's and the GPU's memory as they were"""

        def read() -> None:
            with self.open("torch") as loader:
                for batch in itertools.islice(loader, 8):
                    stamps_of(batch["image"]).sum().item()

        with self.open("torch") as keeps_context:
            next(iter(keeps_context))
            read()
            torch.cuda.empty_cache()
            before = torch.cuda.mem_get_info()[0]
            for _ in range(50):
                read()
            torch.cuda.empty_cache()
            more = before - torch.cuda.mem_get_info()[0]
        return "" if more <= 0 else f"{more >> 20} MiB more"


def main() -> int:
    torch.cuda.set_device(0)
    broken = ask("torch", TorchChecks)
    print(f"\ntorch {torch.__version__}")
    return broken


if __name__ == "__main__":
    raise SystemExit(main())

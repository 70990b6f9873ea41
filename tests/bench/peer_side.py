# SPDX-License-Identifier: Apache-2.0
"""One side of a comparison in a process of its own: what tar_sides.py and its like have in common."""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "images"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import side

Batches = Iterator[tuple[Any, ...]]
LOOKED_AT = 4  # batches

# What its trainer would have loaded anyway, and the loader; from there the clock runs.
Peer = tuple[Callable[[], None], Callable[[Any], Batches]]

# What a benchmark measures beyond speed and memory, of further batches whose rows are units of this name.
Count = Callable[[Batches, str], dict[str, float]]


def import_torch() -> None:
    import torch

    torch.set_num_threads(1)  # the trainer's own arithmetic is not measured


def import_spdld() -> None:
    import_torch()
    import spdld  # noqa: F401


@contextlib.contextmanager
def daemon_with(spec: dict[str, Any], workers: int) -> Iterator[str]:
    """The address of a daemon that knows the dataset and then waits, as one on a node would."""
    from daemon import Daemon

    with Daemon(settings={"executor": {"cpu_threads": workers}}) as daemon:
        pipeline = daemon.directory / f"{spec['pipeline']}.yaml"
        pipeline.write_text(json.dumps(spec))
        daemon.start()
        needs = ["--python", sys.executable] if "python" in spec["source"] else []
        daemon.ctl("apply", "-f", str(pipeline), *needs)
        yield daemon.address


def open_spdld(name: str, address: str, output: tuple[str, ...], **options: Any) -> Batches:
    import spdld

    loader = spdld.Loader(name, address=address, output=output, **options)
    while True:
        yield from loader


def in_turn(jobs: list[Batches]) -> Batches:
    """Of jobs that read beside each other: a batch of each after the other."""
    while True:
        for job in jobs:
            yield next(job)


def endless_dataloader(dataset: Any, batch: int, workers: int, seed: int) -> Batches:
    """torch's DataLoader over `dataset` at random, without epochs' ends: each would drain the workers."""
    import torch

    sampler = torch.utils.data.RandomSampler(
        dataset,
        replacement=True,
        num_samples=1 << 22,
        generator=torch.Generator().manual_seed(seed),
    )
    yield from torch.utils.data.DataLoader(
        dataset, batch_size=batch, sampler=sampler, num_workers=workers, drop_last=True
    )


def endless_draws(draw: Callable[[random.Random], Any], seed: int) -> Iterator[Any]:
    order = random.Random(seed)
    while True:
        yield draw(order)


def spdl_pipeline(source: Iterator[Any], workers: int, add_stages: Callable[[Any], Any]) -> Batches:
    """SPDL's pipeline from `source` on, whose builder `add_stages` gives the stages that make batches."""
    from spdl.pipeline import PipelineBuilder

    builder = add_stages(PipelineBuilder().add_source(source))
    pipeline = builder.add_sink(3).build(num_threads=workers)
    with pipeline.auto_stop():
        yield from pipeline


def look(batches: Batches) -> dict[str, Any]:
    """What the first batches are: comparison.look compares it."""
    import torch

    taken = [torch.as_tensor(next(batches)[0]).clone() for _ in range(LOOKED_AT)]
    values = torch.cat([one.reshape(-1) for one in taken]).double()
    return {
        "shape": list(taken[0].shape),
        "dtype": str(taken[0].dtype),
        "mean": round(values.mean().item(), 4),
        "std": round(values.std().item(), 4),
    }


def _run(
    unit: str, batches: Batches, started: float, words: tuple[str, ...], count: Count | None
) -> None:
    """Does what Comparison.script is told to, and prints the result as a line of JSON."""
    if words == ("look",):
        result = look(batches)
    else:
        seconds, warmup = map(float, words)
        result = side.run(batches, started, seconds, warmup, unit)
        if count is not None:
            result |= count(batches, unit)
    print(json.dumps(result))
    batches.close()


def run_peer(
    unit: str,
    import_it: Callable[[], None],
    open_it: Callable[[], Batches],
    words: tuple[str, ...],
    count: Count | None = None,
) -> None:
    import_it()
    started = time.monotonic()
    _run(unit, open_it(), started, words, count)


def run_spdld(
    unit: str,
    spec: dict[str, Any],
    workers: int,
    output: tuple[str, ...],
    words: tuple[str, ...],
    count: Count | None = None,
    jobs: int = 1,
) -> None:
    import_spdld()
    with daemon_with(spec, workers) as address:
        started = time.monotonic()
        name = spec["pipeline"]
        read = [open_spdld(name, address, output, job=f"job {n}") for n in range(jobs)]
        _run(unit, in_turn(read), started, words, count)

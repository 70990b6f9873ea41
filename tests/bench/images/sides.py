# SPDX-License-Identifier: Apache-2.0
"""The loaders that are compared, each as an endless iterator of (images, labels) batches.

They read the same ImageFolder tree, crop or resize to SIZE x SIZE, deliver uint8 batches and use as
many workers as they are given cores. Imports are inside: each side pays for its own alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

SIZE = 224
TASKS = ("rrc", "resize")


@dataclasses.dataclass(frozen=True)
class Options:
    task: str
    data: str
    batch: int
    workers: int
    seed: int
    rank: int = 0
    ranks: int = 1
    address: str = ""  # of a daemon that runs already; empty: start one


Batches = Iterator[tuple[Any, Any]]
# import_(): what its trainer would have loaded anyway. open_(options): from here the clock runs.
Side = tuple[Callable[[], None], Callable[[Options], Batches]]


def import_torch() -> None:
    import torch

    torch.set_num_threads(1)  # the trainer's own arithmetic is not measured


def import_pytorch() -> None:
    import_torch()
    import torchvision  # noqa: F401


def open_pytorch(options: Options) -> Batches:
    """torch.utils.data.DataLoader over torchvision's ImageFolder, worker processes."""
    import torch
    from torchvision import datasets, transforms

    if options.task == "rrc":
        steps = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()]
    else:
        steps = [transforms.Resize((SIZE, SIZE))]  # of PIL images: antialiased
    dataset = datasets.ImageFolder(
        options.data, transforms.Compose([*steps, transforms.PILToTensor()])
    )
    # Without epochs' ends: each would drain the workers, and this dataset is short.
    sampler = torch.utils.data.RandomSampler(
        dataset,
        num_samples=1 << 22,
        generator=torch.Generator().manual_seed(options.seed + options.rank),
    )
    yield from torch.utils.data.DataLoader(
        dataset,
        batch_size=options.batch,
        sampler=sampler,
        num_workers=options.workers,
        drop_last=True,
    )


def import_spdl() -> None:
    import_torch()
    import spdl.io
    import spdl.pipeline  # noqa: F401


def open_spdl(options: Options) -> Batches:
    """SPDL as its documentation has it: decode each image in a thread, aggregate, convert."""
    import spdl.io
    import torch
    from spdl.pipeline import PipelineBuilder

    root = pathlib.Path(options.data)
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    items = [
        (str(path), label)
        for label, name in enumerate(classes)
        for path in sorted((root / name).iterdir())
    ]
    filter_desc = spdl.io.get_video_filter_desc(
        scale_width=SIZE, scale_height=SIZE, pix_fmt="rgb24"
    )

    def source() -> Iterator[tuple[str, int]]:
        order = random.Random(options.seed + options.rank)
        while True:
            order.shuffle(items)
            yield from items

    def decode(item: tuple[str, int]) -> tuple[Any, int]:
        path, label = item
        packets = spdl.io.demux_image(path)
        return spdl.io.decode_packets(packets, filter_desc=filter_desc), label

    def convert(rows: list[tuple[Any, int]]) -> tuple[Any, Any]:
        buffer = spdl.io.convert_frames([frames for frames, _ in rows])
        return spdl.io.to_torch(buffer), torch.tensor([label for _, label in rows])

    pipeline = (
        PipelineBuilder()
        .add_source(source())
        .pipe(decode, concurrency=options.workers)
        .aggregate(options.batch)
        .pipe(convert)
        .add_sink(3)
        .build(num_threads=options.workers)
    )
    with pipeline.auto_stop():
        yield from pipeline


def pipeline_spec(options: Options) -> dict[str, Any]:
    if options.task == "rrc":
        steps: list[Any] = [
            {"random_resized_crop": {"size": [SIZE, SIZE]}},
            "random_horizontal_flip",
        ]
    else:
        steps = [{"resize": {"size": [SIZE, SIZE]}}]
    return {
        "pipeline": "bench-images",
        "seed": options.seed,
        "source": {"files": {"root": options.data, "pattern": "**/*", "label": "parent_dir"}},
        "shuffle": "global",
        "stages": ["fetch", "decode_image", *steps],
        "batch": {"size": options.batch, "last": "drop", "layout": "NCHW"},
    }


def start_daemon(options: Options) -> Any:
    """A daemon that has listed the dataset and then waits, as one on a node would."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
    from daemon import Daemon

    daemon = Daemon(settings={"executor": {"cpu_threads": options.workers}})
    pipeline = daemon.directory / "bench-images.yaml"
    pipeline.write_text(json.dumps(pipeline_spec(options)))
    try:
        daemon.start()
        daemon.ctl("apply", "-f", str(pipeline))
    except BaseException:
        daemon.close()
        raise
    return daemon


def import_spdld() -> None:
    import_torch()
    import spdld  # noqa: F401


def open_spdld(options: Options) -> Batches:
    """This project: the daemon's cores do the work, and the batch is mapped."""
    import spdld

    loader = spdld.Loader(
        "bench-images",
        job="bench" if options.ranks > 1 else None,
        rank=options.rank,
        world_size=options.ranks,
        address=options.address,
        output=("image", "label"),
    )
    while True:
        yield from loader


def open_bare(options: Options) -> Batches:
    """No loader at all: what the imports and the trainer's own batches cost."""
    import torch

    images = torch.zeros((options.batch, 3, SIZE, SIZE), dtype=torch.uint8)
    while True:
        time.sleep(0.05)
        yield images, torch.zeros(options.batch, dtype=torch.int64)


SIDES: dict[str, Side] = {
    "spdld": (import_spdld, open_spdld),
    "pytorch": (import_pytorch, open_pytorch),
    "spdl": (import_spdl, open_spdl),
    "bare": (import_spdld, open_bare),
    "bare-pytorch": (import_pytorch, open_bare),
}


def cores() -> int:
    return len(os.sched_getaffinity(0))

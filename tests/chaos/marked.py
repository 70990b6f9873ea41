# SPDX-License-Identifier: Apache-2.0
"""Pipelines whose rows say which item they are, and by which text and which variable they were made."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence

import on_gpu
from PIL import Image

PIPELINE = "lockstep"
ITEMS = 96  # of every batch size and world that is drawn, whole and broken epochs
UNIT = 0.01  # of a mark in what `normalize` takes away

Mark = tuple[int, int]  # of the text, of the variable `mark`


@dataclasses.dataclass(frozen=True)
class Text:
    """What is written into a pipeline's file, beside what is the same in all."""

    mark: int
    batch: int
    last: str
    concurrency: int = 8  # of fetch: what can be tuned


def mark(pixel: Sequence[int]) -> Mark:
    return -pixel[0], -pixel[1]


def item(pixel: Sequence[int]) -> int:
    return pixel[2]


def variable(value: int) -> dict[str, float]:
    """`vars` that make rows with this mark."""
    return {"mark": value * UNIT}


def side() -> int:
    """Of the images."""
    return on_gpu.enlarged(2)


def write_images(root: pathlib.Path) -> None:
    root.mkdir(parents=True)
    for index in range(ITEMS):
        Image.new("RGB", (side(), side()), (0, 0, index)).save(root / f"{index:04}.png")


def write_pipeline(path: pathlib.Path, root: pathlib.Path, text: Text) -> pathlib.Path:
    spec = {
        "pipeline": PIPELINE,
        "seed": 7,
        "vars": variable(0),
        "source": {"files": {"root": str(root), "pattern": "*.png"}},
        "shuffle": "global",
        "stages": [
            {"fetch": {"concurrency": text.concurrency}},
            "decode_image",
            {
                "center_crop": {"size": [side(), side()]}
            },  # all of it: says that they are of one size
            {
                "normalize": {
                    "mean": [text.mark * UNIT, "${mark}", 0.0],
                    "std": [UNIT, UNIT, 1 / 255],
                }
            },
        ],
        "batch": {"size": text.batch, "last": text.last, "layout": "NHWC"},
    }
    spec = on_gpu.delivered(spec)
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in spec.items()))
    return path

# SPDX-License-Identifier: Apache-2.0
"""Images with boxes and masks, pipelines that crop, resize and flip them, and the pipelines' draws.

tests/goldens/make_boxes.py asks torchvision what becomes of them; test_boxes.py asks spdld.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import random
import zlib
from typing import Any

import numpy as np
from PIL import Image, ImageOps

SEED = 11
SAMPLES = 50  # of each pipeline
GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "boxes.json"
ORIENTATION_TAG = 0x0112

Stage = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """What is done to the samples, as the YAML says it; `boxes` are bounding_boxes' parameters."""

    stages: list[Stage]
    boxes: dict[str, Any] = dataclasses.field(default_factory=dict)
    turned: bool = False  # images have an EXIF orientation


FLIP: Stage = {"random_horizontal_flip": {"p": 0.5}}
PIPELINES = {
    "resize": Pipeline([{"resize": {"size": [96, 131]}}]),
    "short_side": Pipeline(
        [{"resize": {"size": 64, "max_size": 100}}, {"center_crop": {"size": 64}}]
    ),
    "center_crop": Pipeline([{"center_crop": {"size": [80, 120]}}], {"min_area": 30}),
    "random_crop": Pipeline(
        [{"random_crop": {"size": [60, 71], "padding": [10, 5], "pad_if_needed": True}}],
        {"format": "xywh"},
    ),
    "resized_crop": Pipeline([{"random_resized_crop": {"size": 64}}], {"format": "cxcywh"}),
    "flipped": Pipeline([{"random_resized_crop": {"size": [48, 90]}}, FLIP], {"min_size": 4}),
    "many": Pipeline(
        [
            FLIP,
            {"resize": {"size": [150, 140]}},
            {"random_crop": {"size": 100}},
            FLIP,
            {"resize": {"size": [75, 131]}},
            {"random_crop": {"size": [90, 140], "pad_if_needed": True}},
        ],
        {"min_area": 12.5, "min_size": 2},
    ),
    "normalized": Pipeline(
        [{"random_resized_crop": {"size": 77, "scale": [0.3, 1.0]}}, FLIP],
        {"format": "cxcywh", "normalized": True},
    ),
    "turned": Pipeline([{"random_resized_crop": {"size": 64}}, FLIP], turned=True),
    "turned_resize": Pipeline([{"resize": {"size": [99, 66]}}, FLIP], turned=True),
}


class Sample:
    """One image of a pipeline; all of it follows from its number."""

    def __init__(self, pipeline: str, number: int) -> None:
        self.spec = PIPELINES[pipeline]
        self.number = number
        rng = random.Random(f"{pipeline} {number}")
        self.width, self.height = (30 + int(rng.random() * 170) for _ in range(2))
        self.orientation = 1 + int(rng.random() * 8) if self.spec.turned else 1
        # Boxes stand for the upright image.
        size = self.upright
        self.edges = []
        for _ in range(int(rng.random() * 7)):
            x, y = ((rng.random() * 1.2 - 0.15) * extent for extent in size)
            width, height = (rng.random() ** 2 * extent * 0.9 for extent in size)
            self.edges.append((x, y, x + width, y + height))

    @property
    def upright(self) -> tuple[int, int]:
        turned = self.orientation >= 5
        return (self.height, self.width) if turned else (self.width, self.height)

    def numbers(self) -> list[list[float]]:
        """The boxes as the pipeline's `format` has them."""
        rows = []
        for x1, y1, x2, y2 in self.edges:
            row = [x1, y1, x2, y2]
            if self.spec.boxes.get("format") == "xywh":
                row = [x1, y1, x2 - x1, y2 - y1]
            if self.spec.boxes.get("format") == "cxcywh":
                row = [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
            if self.spec.boxes.get("normalized"):
                row = [number / size for number, size in zip(row, self.upright * 2, strict=True)]
            rows.append(row)
        return rows

    def mask(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        width, height = self.upright
        y, x = np.mgrid[:height, :width]
        return ((x * 7 + y * 13 + self.number) % 251 + 1).astype(np.uint8)

    def save(self, directory: pathlib.Path) -> None:
        image = Image.new("RGB", (self.width, self.height), (self.number, 9, 9))
        exif = Image.Exif()
        if self.orientation != 1:
            exif[ORIENTATION_TAG] = self.orientation
        image.save(directory / f"{self.number}.jpg", exif=exif)
        assert ImageOps.exif_transpose(image.copy()) is not None
        Image.fromarray(self.mask()).save(directory / f"{self.number}.png")


def write_pipeline(directory: pathlib.Path, name: str) -> pathlib.Path:
    """The pipeline's YAML, with all that it needs beside it."""
    directory.mkdir()
    rows = []
    for number in range(SAMPLES):
        sample = Sample(name, number)
        sample.save(directory)
        boxes = [value for box in sample.numbers() for value in box]
        rows.append(
            {
                "image": f"{number}.jpg",
                "mask": f"{number}.png",
                "boxes": boxes,
                "labels": list(range(len(boxes) // 4)),
            }
        )
    (directory / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = PIPELINES[name]
    stages: list[Any] = [
        "fetch",
        "decode_image",
        {"decode_image": {"field": "mask", "mode": "index"}},
        {"bounding_boxes": {**spec.boxes, "with": ["labels"]}},
    ]
    stages += spec.stages
    pipeline = {
        "pipeline": f"boxes-{name}",
        "seed": SEED,
        "source": {
            "table": {
                "file": "table.jsonl",
                "uri": {"image": "image", "mask": "mask"},
                "values": {
                    "boxes": {"column": "boxes", "type": "float64_list"},
                    "labels": {"column": "labels", "type": "int64_list"},
                },
            }
        },
        "stages": stages,
        "batch": {"size": 20, "last": "keep"},
        "on_error": {"decode": "fail"},
    }
    path = directory / f"{name}.yaml"
    # JSON is YAML, and the name's line is what a loader looks for.
    path.write_text("".join(f"{key}: {json.dumps(pipeline[key])}\n" for key in pipeline))
    return path


def mask_digest(mask: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(mask, dtype=np.uint8).tobytes())


# What follows says again in Python what server/base/rng.h and transform/image/crop_ops.cpp draw.
WORD = 1 << 64


def mix(a: int, b: int | None = None) -> int:
    if b is not None:
        return mix(mix(a) ^ b)
    a = (a + 0x9E3779B97F4A7C15) % WORD
    a = (a ^ (a >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    a = (a ^ (a >> 27)) * 0x94D049BB133111EB % WORD
    return a ^ (a >> 31)


def name_key(name: str) -> int:
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 % WORD
    return key


class Draws:
    """The draws of one op on one sample."""

    def __init__(self, epoch: int, position: int, op: str, occurrence: int) -> None:
        sample = mix(mix(SEED, epoch), position)
        self.key = mix(sample, mix(name_key(op), occurrence))
        self.count = 0

    def word(self) -> int:
        self.count += 1
        return mix(self.key, self.count)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * ((self.word() >> 11) * 2.0**-53)

    def below(self, bound: int) -> int:
        return self.word() * bound >> 64

    def resized_crop(
        self, width: int, height: int, scale: list[float], ratio: list[float]
    ) -> tuple[int, int, int, int]:
        """Top, left, height and width of random_resized_crop's part of an image."""
        for _ in range(10):
            area = width * height * self.uniform(*scale)
            aspect = math.exp(self.uniform(math.log(ratio[0]), math.log(ratio[1])))
            wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < wide <= width and 0 < high <= height:
                top = self.below(height - high + 1)
                return top, self.below(width - wide + 1), high, wide
        wide, high = width, height
        if width / height < ratio[0]:
            high = min(max(round(width / ratio[0]), 1), height)
        elif width / height > ratio[1]:
            wide = min(max(round(height * ratio[1]), 1), width)
        return (height - high) // 2, (width - wide) // 2, high, wide

# SPDX-License-Identifier: Apache-2.0
"""Images whose every pixel follows from their index, and the pipelines that read them."""

from __future__ import annotations

import functools
import io
import json
import pathlib
from typing import Any

import kinds
import numpy as np
import on_gpu
from PIL import Image

# A batch of four lies above the 64 KiB up to which fields are copied at hand-out: it is leased.
SIDE = 80
BATCH = 4
# With code: so many rows an item, of which a filter leaves so many.
ROWS, PARTS = 3, 2
CODE = """
def flip(image, part, flipped):
    return {"image": image[:, ::-1] if flipped else image, "part": part}
"""


@functools.cache
def _texture() -> np.ndarray:
    texture = np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    texture.setflags(write=False)
    return texture


@functools.cache
def _file(index: int) -> bytes:
    key = np.array([index & 255, index >> 8 & 255, index * 151 & 255], dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(_texture() ^ key).save(out, "jpeg", quality=90)
    return out.getvalue()


@functools.cache
def expected(index: int, flipped: bool = False) -> np.ndarray:
    """The pixels of item `index`, as Pillow decodes it: no two items have the same."""
    picture = np.asarray(Image.open(io.BytesIO(_file(index))))
    return picture[:, ::-1] if flipped else picture


def write_images(root: pathlib.Path, count: int) -> None:
    root.mkdir(parents=True)
    for index in range(count):
        (root / f"{index:06}.jpg").write_bytes(_file(index))  # in the order of the numbers


def write_pipeline(
    path: pathlib.Path,
    root: pathlib.Path,
    name: str,
    *,
    flipped: bool,
    kind: kinds.Kind = kinds.PLAIN,
    code: bool = False,
) -> None:
    """Two variants that differ in what is in a batch, and in nothing that a batch looks like.

    With `code` each item has PARTS valid rows, and a function of the user's flips them.
    """
    stage: dict[str, Any] = {"random_horizontal_flip": {"p": 1.0 if flipped else 0.0}}
    if code:
        path.with_name("flip.py").write_text(CODE)
        stage = {
            "python": {
                "call": "flip.py:flip",
                "in": ["image", "part"],
                "out": {"image": f"uint8[{SIDE},{SIDE},3]", "part": "int64"},
                "args": {"flipped": flipped},
                "concurrency": 2,
            }
        }
    spec = {
        "pipeline": name,
        "seed": 7,
        "source": {"files": {"root": str(root), "pattern": "*.jpg"}},
        "shuffle": "global",
        "stages": [
            "fetch",
            {"decode_image": {"verify": "1/1"}},
            {"center_crop": {"size": [SIDE, SIDE]}},  # all of it: says that they are of one size
            stage,
        ],
        # Ends of epochs that do not come out even are the harder case.
        "batch": {"size": BATCH, "last": "keep", "layout": "NHWC"},
    }
    if code:
        spec["repeat"] = {"rows": ROWS, "adjacent": False}
        spec["stages"].insert(-1, {"filter": {"where": f"part < {PARTS}", "rejected": "invalid"}})
    spec = on_gpu.delivered(kinds.of_kind(kind, spec))
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in spec.items()))

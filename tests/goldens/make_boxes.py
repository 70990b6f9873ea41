#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes boxes.json: what torchvision.transforms.v2 makes of the boxes and masks of
tests/integration/box_samples.py when it is given spdld's draws.

    PYTHON tests/goldens/make_boxes.py        with a PYTHON that has torch, torchvision and Pillow

Boxes are tv_tensors in float64, masks tv_tensors that are resized by NEAREST_EXACT: the default of
masks, NEAREST, takes pixels half a pixel beside those that images and boxes are resized to.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import torch
import torchvision
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))
from box_samples import GOLDENS, PIPELINES, SAMPLES, Draws, Sample, mask_digest

EXACT = v2.InterpolationMode.NEAREST_EXACT
FORMATS = tv_tensors.BoundingBoxFormat


class Crop(v2.RandomCrop):
    """Pads as torchvision does, and crops what our draws say."""

    draws: Draws

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        params: dict[str, Any] = super().make_params(flat_inputs)
        height, width = v2._utils.query_size(flat_inputs)
        left, top, right, bottom = params["padding"]
        params["top"] = self.draws.below(height + top + bottom - params["height"] + 1)
        params["left"] = self.draws.below(width + left + right - params["width"] + 1)
        return params


class ResizedCrop(v2.RandomResizedCrop):
    """Crops what our draws say."""

    draws: Draws

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = v2._utils.query_size(flat_inputs)
        top, left, high, wide = self.draws.resized_crop(
            width, height, list(self.scale), list(self.ratio)
        )
        return {"top": top, "left": left, "height": high, "width": wide}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if not isinstance(inpt, tv_tensors.Mask):
            return super().transform(inpt, params)
        # resized_crop() resizes masks by NEAREST, whatever it is told.
        return functional.resize(functional.crop(inpt, **params), self.size, interpolation=EXACT)


def apply(op: str, parameters: dict[str, Any], draws: Draws, sample: Any) -> Any:
    if op == "resize":
        return v2.Resize(interpolation=EXACT, **parameters)(sample)
    if op == "center_crop":
        crop = v2.CenterCrop(**parameters)
        # Where the image is smaller, CenterCrop pads it, and shifts boxes by an odd padding's other
        # half: here both are padded alike.
        height, width = v2._utils.query_size(list(sample.values()))
        missing = [
            max(most - least, 0) for most, least in zip(crop.size, (height, width), strict=True)
        ]
        left, top = missing[1] // 2, missing[0] // 2
        padding = [left, top, (missing[1] + 1) // 2, (missing[0] + 1) // 2]
        return crop(v2.Pad(padding)(sample))
    if op == "random_horizontal_flip":
        return v2.RandomHorizontalFlip(1 if draws.uniform() < parameters["p"] else 0)(sample)
    if op == "random_resized_crop":
        size = parameters["size"]
        transform = ResizedCrop(
            **{**parameters, "size": size if isinstance(size, list) else [size, size]}
        )
        transform.draws = draws
        return transform(sample)
    assert op == "random_crop"
    crop = Crop(**parameters)
    crop.draws = draws
    return crop(sample)


def golden(name: str, number: int) -> dict[str, Any]:
    given = Sample(name, number)
    spec = PIPELINES[name]
    width, height = given.upright
    numbers = torch.tensor(given.numbers(), dtype=torch.float64).reshape(-1, 4)
    if spec.boxes.get("normalized"):
        numbers *= torch.tensor([width, height, width, height])
    layout = FORMATS[spec.boxes.get("format", "xyxy").upper()]
    boxes = tv_tensors.BoundingBoxes(numbers, format=layout, canvas_size=(height, width))
    mask = tv_tensors.Mask(torch.from_numpy(given.mask())[None])
    sample = {"boxes": boxes, "mask": mask}
    seen: dict[str, int] = {}
    for stage in spec.stages:
        ((op, parameters),) = stage.items()
        draws = Draws(0, number, op, seen.get(op, 0))
        seen[op] = seen.get(op, 0) + 1
        sample = apply(op, parameters, draws, sample)
    sample["boxes"] = functional.convert_bounding_box_format(
        sample["boxes"], new_format=FORMATS.XYXY
    )
    sample = v2.ClampBoundingBoxes()(sample)
    mask = sample.pop("mask")  # beside a single box it would pass for a mask of that box alone
    sample["labels"] = torch.arange(len(boxes))  # among transforms it would pass for an image
    sample = v2.SanitizeBoundingBoxes(
        min_size=spec.boxes.get("min_size", 1), min_area=spec.boxes.get("min_area", 1)
    )(sample)
    return {
        "boxes": [[round(edge, 6) for edge in box] for box in sample["boxes"].tolist()],
        "labels": sample["labels"].tolist(),
        "mask": [*mask.shape[1:], mask_digest(mask.numpy())],
    }


def main() -> None:
    lines = []
    for name in PIPELINES:
        rows = [json.dumps(golden(name, number)) for number in range(SAMPLES)]
        lines.append(f"{json.dumps(name)}: [\n" + ",\n".join(rows) + "\n]")
    made_by = json.dumps(f"torchvision {torchvision.__version__}, torch {torch.__version__}")
    GOLDENS.write_text(f'{{"made by": {made_by},\n' + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

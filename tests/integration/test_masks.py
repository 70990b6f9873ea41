# SPDX-License-Identifier: Apache-2.0
"""Images with a mask each, which share crops, flips and resizes: by a real daemon."""

from __future__ import annotations

import csv
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld
from PIL import Image

COUNT = 8
WIDTH, HEIGHT = 60, 44
CROP = {"random_resized_crop": {"size": [24, 31]}}
FLIP = "random_horizontal_flip"
DECODE = ["fetch", "decode_image", {"decode_image": {"field": "mask", "mode": "index"}}]


def write_pairs(directory: pathlib.Path, mask_size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
    """Masks of 21 classes in four kinds of files; an image's red is ten times its mask."""
    numbers = np.random.default_rng(3).integers(0, 21, (COUNT, HEIGHT, WIDTH), dtype=np.uint8)
    with (directory / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "mask"])
        for index, classes in enumerate(numbers):
            red = Image.fromarray(classes * 10)
            Image.merge("RGB", (red, red, red)).save(directory / f"{index}.png")
            mask = Image.fromarray(classes).resize(mask_size, Image.Resampling.NEAREST)
            if index % 2:
                mask = Image.fromarray(np.asarray(mask), "P")
                mask.putpalette(bytes(range(255, 192, -1)))
            name = f"{index}_mask.{('png', 'png', 'bmp', 'tif')[index % 4]}"
            mask.save(directory / name)
            writer.writerow([f"{index}.png", name])


def write_pipeline(directory: pathlib.Path, stages: list[Any]) -> pathlib.Path:
    spec = {
        "pipeline": "pairs",
        "source": {"table": {"file": "table.csv", "uri": {"image": "image", "mask": "mask"}}},
        "stages": [*DECODE, *stages],
        "batch": {"size": 4},
        "on_error": {"decode": "fail"},
    }
    path = directory / "pairs.yaml"
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in spec.items()))
    return path


def pairs(daemon: Any, epochs: int = 2) -> list[tuple[np.ndarray, np.ndarray]]:
    with spdld.Loader("pairs", address=daemon.address) as loader:
        return [
            (image.copy(), mask.copy())
            for _ in range(epochs)
            for batch in loader
            for image, mask in zip(batch["image"], batch["mask"], strict=True)
        ]


def test_a_mask_shows_what_its_image_shows(
    make_daemon: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    write_pairs(tmp_path)
    # What both take unchanged: a resize may round a tie otherwise for images than for masks.
    daemon = make_daemon(
        pipelines=[write_pipeline(tmp_path, [{"random_crop": {"size": [24, 31]}}, FLIP])]
    )
    seen = pairs(daemon)
    assert len(seen) == 2 * COUNT
    for image, mask in seen:
        assert mask.shape == (1, 24, 31)
        assert np.array_equal(image[0], mask[0] * 10)


def test_a_mask_keeps_its_numbers_beside_an_image_that_is_smoothed_and_normalised(
    make_daemon: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    write_pairs(tmp_path)
    smooth = {"random_resized_crop": {"size": [24, 31], "interpolation": "bicubic"}}
    normalize = {"normalize": {"mean": 0.5, "std": 0.25}}
    daemon = make_daemon(pipelines=[write_pipeline(tmp_path, [FLIP, smooth, normalize])])
    for image, mask in pairs(daemon):
        assert image.dtype == np.float32
        assert mask.dtype == np.uint8
        assert mask.max() <= 20


def test_a_mask_of_another_size_is_an_error_that_names_both(
    make_daemon: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    write_pairs(tmp_path, mask_size=(WIDTH, HEIGHT - 1))
    daemon = make_daemon(pipelines=[])
    path = write_pipeline(tmp_path, [CROP])
    said = daemon.ctl("apply", "-f", str(path), check=False).stderr
    assert "its field 'mask' has 60x43 pixels, and the image that it belongs to 60x44" in said


@pytest.mark.parametrize("ending", ["png", "tif"])
@pytest.mark.parametrize("widened", [False, True], ids=["uint16", "int64"])
def test_masks_of_16_bits_keep_their_numbers(
    make_daemon: Callable[..., Any], tmp_path: pathlib.Path, ending: str, widened: bool
) -> None:
    numbers = np.random.default_rng(5).integers(0, 40000, (4, HEIGHT, WIDTH)).astype(np.uint16)
    # One of 8 bits stands among them.
    numbers[0] %= 200
    lines = ["image,mask"]
    for index, classes in enumerate(numbers):
        Image.fromarray((classes >> 8).astype(np.uint8)).save(tmp_path / f"{index}.png")
        stored = classes.astype(np.uint8) if index == 0 else classes
        Image.fromarray(stored).save(tmp_path / f"{index}_mask.{ending}")
        lines.append(f"{index}.png,{index}_mask.{ending}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    # What makes all of one size, which they have.
    stages: list[Any] = [{"center_crop": {"size": [HEIGHT, WIDTH]}}]
    stages.append({"random_horizontal_flip": {"p": 1}})
    if widened:
        stages.append({"to_dtype": {"dtype": "int64", "fields": "mask"}})
    path = write_pipeline(tmp_path, stages)
    wide = path.read_text().replace('"mode": "index"', '"mode": "index", "dtype": "uint16"')
    path.write_text(wide + "shuffle: none\n")
    seen = pairs(make_daemon(pipelines=[path]), epochs=1)
    for (_, mask), classes in zip(seen, numbers, strict=True):
        assert mask.dtype == (np.int64 if widened else np.uint16)
        assert np.array_equal(mask[0], classes[:, ::-1])


def test_masks_of_16_bits_need_a_dtype_that_holds_them(
    make_daemon: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    write_pairs(tmp_path)
    wide = np.full((HEIGHT, WIDTH), 300, np.uint16)
    Image.fromarray(wide).save(tmp_path / "0_mask.png")
    daemon = make_daemon(pipelines=[])
    said = daemon.ctl("apply", "-f", str(write_pipeline(tmp_path, [CROP])), check=False).stderr
    assert "'mode: index' reads numbers of up to 8 bits, and with 'dtype: uint16' of up to" in said

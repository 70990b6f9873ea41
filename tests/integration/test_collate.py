# SPDX-License-Identifier: Apache-2.0
"""Rows of different size: ragged and padded images, and what a row may take."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld
from PIL import Image

ROWS = 10


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    """Images of which number i is 10 + i wide, 20 - i high and of the grey i * 10."""
    for i in range(ROWS):
        Image.new("RGB", (10 + i, 20 - i), (i * 10,) * 3).save(tmp_path / f"{i}.png")
    return tmp_path


@pytest.fixture
def load(daemon: Any, data: pathlib.Path) -> Callable[..., spdld.Loader]:
    def make(batch: str, rest: str = "", stages: str = "[fetch, decode_image]") -> spdld.Loader:
        path = data / "own-sizes.yaml"
        path.write_text(
            "pipeline: own-sizes\n"
            'source: {files: {root: ".", pattern: "*.png"}}\n'
            f"stages: {stages}\nbatch: {{size: 4, {batch}}}\n{rest}"
        )
        return spdld.Loader(path, address=daemon.address)

    return make


def test_images_of_their_own_size_come_one_by_one(load: Callable[..., Any]) -> None:
    with load("last: keep, layout: NHWC, collate: {image: {kind: ragged, max_bytes: 4KiB}}") as own:
        rows = 0
        for batch in own:
            for i, image in zip(batch.indices, batch["image"], strict=True):
                assert image.shape == (20 - i, 10 + i, 3) and (image == i * 10).all()
            rows += batch.rows
        assert rows == ROWS


def test_images_are_padded_to_the_largest_of_their_batch(load: Callable[..., Any]) -> None:
    with load("collate: {image: {pad: 255, multiple_of: 8, max_bytes: 8KiB}}") as padded:
        for batch in padded:
            sizes = [(20 - i, 10 + i) for i in batch.indices]
            high, wide = ((max(extent) + 7) // 8 * 8 for extent in zip(*sizes, strict=True))
            images = batch["image"]
            assert images.shape == (4, 3, high, wide) and images.dtype == np.uint8
            assert batch["image_length"].tolist() == [list(size) for size in sizes]
            for i, (height, width), image in zip(batch.indices, sizes, images, strict=True):
                assert (image[:, :height, :width] == i * 10).all()
                assert (image[:, height:] == 255).all() and (image[:, :, width:] == 255).all()


def test_an_epoch_of_ragged_rows_is_the_same_each_time(load: Callable[..., Any]) -> None:
    def epoch() -> list[bytes]:
        batch = "collate: {image: {kind: ragged, max_bytes: 4KiB}}"
        with load(batch, rest="shuffle: global\n") as own:
            return [image.tobytes() for batch in own for image in batch["image"]]

    assert epoch() == epoch()


def test_a_row_beyond_its_bound_says_what_to_raise(load: Callable[..., Any]) -> None:
    own = load(
        "collate: {image: {kind: ragged, max_bytes: 100}}", rest="on_error: {decode: fail}\n"
    )
    told = r"'image' takes \d+ bytes, and a row of it may take 100: raise batch.collate.image"
    with pytest.raises(spdld.PipelineError, match=told):
        next(iter(own))


def test_rows_beyond_the_room_of_their_batch_say_what_to_raise(load: Callable[..., Any]) -> None:
    own = load("max_bytes: 1500, collate: {image: {kind: ragged, max_bytes: 700}}")
    with pytest.raises(spdld.PipelineError, match=r"rows of 'image' take 2\d\d\d bytes, .* 1500"):
        next(iter(own))


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ("collate: {imag: ragged}", "there is no field 'imag'; there are 'image'"),
        ("collate: {image: {kind: ragged, pad: 0}}", "its kind is pad"),
        ("collate: {image: {kind: ragged, multiple_of: 2}}", "only padded rows"),
        ("collate: {image: {pad: 0.5, max_bytes: 4KiB}}", "no value of its dtype, uint8"),
        ("collate: {image: {kind: stack, max_bytes: 4KiB}}", "cannot be stacked"),
        ("collate: {image: bytes}", "it holds uint8 values, not bytes"),
        ("collate: {image: ragged}", "set batch.max_bytes"),
        ("collate: {image: tensor}", "stack, ragged, bytes"),
    ],
)
def test_a_collate_that_cannot_be_is_refused_by_its_place(
    load: Callable[..., Any], batch: str, told: str
) -> None:
    with pytest.raises(spdld.PipelineError, match=told) as refused:
        len(load(batch))
    assert "own-sizes.yaml:4:" in str(refused.value) or "max_bytes" in told


def test_rows_of_one_shape_need_no_padding(load: Callable[..., Any]) -> None:
    stages = "[fetch, decode_image, {resize: {size: [8, 8]}}]"
    with pytest.raises(spdld.PipelineError, match="all its rows have one shape: leave it out"):
        len(load("collate: {image: {pad: 0}}", stages=stages))


@pytest.fixture
def alike(tmp_path: pathlib.Path) -> pathlib.Path:
    """Images of one size, of which number i is of the grey i * 10."""
    root = tmp_path / "alike"
    root.mkdir()
    for i in range(ROWS):
        Image.new("RGB", (32, 24), (i * 10,) * 3).save(root / f"{i}.png")
    return root


def as_they_are(root: pathlib.Path, stages: str = "decode_image", rest: str = "") -> pathlib.Path:
    path = root.parent / "as-they-are.yaml"
    path.write_text(
        "pipeline: as-they-are\n"
        f'source: {{files: {{root: {root}, pattern: "*.png"}}}}\n'
        f"stages: [fetch, {stages}]\nbatch: {{size: 5, last: keep}}\n{rest}"
    )
    return path


@pytest.mark.parametrize(
    ("stages", "shape"),
    [
        ("decode_image", (3, 24, 32)),
        ("decode_image, random_horizontal_flip, {normalize: {mean: 0.5, std: 0.5}}", (3, 24, 32)),
        ("{decode_image: {mode: gray}}, {resize: {size: 48}}", (1, 48, 64)),
        ("{decode_image: {mode: rgb}}, {center_crop: {size: [8, 40]}}", (3, 8, 40)),
    ],
)
def test_images_of_one_size_are_stacked_without_a_resize(
    daemon: Any, alike: pathlib.Path, stages: str, shape: tuple[int, ...]
) -> None:
    with spdld.Loader(as_they_are(alike, stages), address=daemon.address) as loader:
        for batch in loader:
            assert batch["image"].shape == (5, *shape) and batch.valid.all()
            if shape == (3, 24, 32) and batch["image"].dtype == np.uint8:
                assert (batch["image"] == batch.indices[:, None, None, None] * 10).all()


def test_an_image_of_another_size_is_an_error_that_names_it(
    daemon: Any, alike: pathlib.Path
) -> None:
    path = as_they_are(alike, rest="on_error: {decode: fail}\n")
    daemon.ctl("apply", "-f", path)
    Image.new("RGB", (33, 24)).save(alike / "7.png")
    told = (
        r"7\.png\): its field 'image' has the shape \[3, 24, 33\], and a row of the stack "
        r"\[3, 24, 32\], which the others have: add a resize to .*, or let them differ: "
        r"batch: \{collate: \{image: \{kind: ragged, max_bytes: 4MiB\}\}\}"
    )
    with (
        pytest.raises(spdld.PipelineError, match=told),
        spdld.Loader("as-they-are", address=daemon.address) as loader,
    ):
        list(loader)


def test_images_that_differ_are_refused_by_name(daemon: Any, alike: pathlib.Path) -> None:
    Image.new("RGB", (24, 32)).save(alike / "7.png")
    told = r"differ in size \(0\.png has 32x24 pixels, 7\.png 24x32\), and a batch needs one: add"
    with pytest.raises(spdld.PipelineError, match=told):
        len(spdld.Loader(as_they_are(alike), address=daemon.address))


def test_images_keep_the_size_that_was_applied(daemon: Any, alike: pathlib.Path) -> None:
    path = as_they_are(alike, rest="on_error: {decode: fail}\n")
    daemon.ctl("apply", "-f", path)
    for i in range(ROWS):
        Image.new("RGB", (16, 16)).save(alike / f"{i}.png")
    daemon.restart()
    with (
        pytest.raises(spdld.PipelineError, match=r"shape \[3, 16, 16\], and .* \[3, 24, 32\]"),
        spdld.Loader("as-they-are", address=daemon.address) as loader,
    ):
        next(iter(loader))
    daemon.ctl("apply", "-f", path)
    with spdld.Loader("as-they-are", job="new", address=daemon.address) as loader:
        assert next(iter(loader))["image"].shape == (5, 3, 16, 16)

# SPDX-License-Identifier: Apache-2.0
"""decode_image, by a real daemon, beside Pillow: every format and kind in every mode."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld
from integration.conftest import Dataset
from integration.image_kinds import HEIGHT, WIDTH, Kind, every_kind
from PIL import Image

UNCHANGED = [f"unchanged-{n}-{dtype}" for dtype in ("uint8", "uint16") for n in (1, 2, 3, 4)]
MODES = ["rgb", "gray", "rgba", "gray16", "index", *UNCHANGED]
WIDE = ("I", "I;16", "I;16B")  # what Pillow calls gray of 16 bits


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> list[Kind]:
    return every_kind(tmp_path_factory.mktemp("avif"))


def channels_of(image: Image.Image) -> int:
    """What an image has whose palette is looked up, and whose alpha is a channel."""
    gray = image.mode in ("1", "L", "LA", *WIDE)
    alpha = image.mode in ("LA", "RGBA") or "transparency" in image.info
    return (1 if gray else 3) + (1 if alpha else 0)


def by_pillow(data: bytes, mode: str) -> np.ndarray | None:
    """What a mode makes of a file; None: it refuses it. Where wide gray becomes bytes, decode_image
    keeps the high ones, and Pillow makes all of them white."""
    image = Image.open(io.BytesIO(data))
    image.load()
    wide = image.mode in WIDE
    pixels = np.asarray(image)
    if mode == "gray16":
        if wide:
            return pixels.astype(np.uint16)[..., None]
        if image.mode in ("1", "L"):
            return np.asarray(image.convert("L")).astype(np.uint16)[..., None] * 257
        return np.asarray(image)[..., :1].astype(np.uint16) * 257 if image.mode == "LA" else None
    if mode == "index":
        return pixels.astype(np.uint8)[..., None] if image.mode in ("1", "L", "P") else None
    if mode.startswith("unchanged"):
        _, channels, dtype = mode.split("-")
        if (
            image.mode == "CMYK"
            or channels_of(image) != int(channels)
            or wide != (dtype == "uint16")
        ):
            return None
        if wide:
            return pixels.astype(np.uint16)[..., None]
        to = {1: "L", 2: "RGBA", 3: "RGB", 4: "RGBA"}[int(channels)]
        plain = np.asarray(image.convert(to)).reshape(HEIGHT, WIDTH, -1)
        return plain[..., [0, 3]] if channels == "2" else plain
    if wide:
        image = Image.fromarray((pixels.astype(int) >> 8).astype(np.uint8))
    if mode == "gray":
        return np.asarray(image.convert("RGB").convert("L"))[..., None]
    return np.asarray(image.convert({"rgb": "RGB", "rgba": "RGBA"}[mode]))


def expected(kind: Kind, mode: str) -> np.ndarray | None:
    if mode in kind.known:
        return kind.known[mode]
    if kind.name.endswith(".avif"):
        return None
    # Of colours of 16 bits Pillow knows the high bytes alone.
    if mode.startswith("unchanged") and any("uint16" in known for known in kind.known):
        return None
    return by_pillow(kind.data, mode)


def decode_stage(mode: str) -> dict[str, Any]:
    if not mode.startswith("unchanged"):
        return {"decode_image": {"mode": mode}}
    name, channels, dtype = mode.split("-")
    return {"decode_image": {"mode": name, "channels": int(channels), "dtype": dtype}}


def write_files(directory: pathlib.Path, files: dict[str, bytes]) -> Dataset:
    directory.mkdir()
    for name, data in files.items():
        # Names say nothing: the content does.
        (directory / f"{name}.image").write_bytes(data)
    return Dataset(directory, sorted(directory.iterdir()), [])


def sections(data: Dataset, *stages: Any, batch: int = 4) -> dict[str, Any]:
    return {
        "source": {"files": {"root": str(data.root), "pattern": "*.image", "label": "none"}},
        "shuffle": "none",
        "stages": ["fetch", *stages],
        "batch": {"size": batch, "last": "keep", "layout": "NHWC"},
        "on_error": {"decode": "fail"},
    }


def rows_of(loader: spdld.Loader) -> list[np.ndarray]:
    return [row.copy() for batch in loader for row in batch["image"]]


@pytest.mark.parametrize("mode", MODES)
def test_pixels_of_every_kind_are_those_that_pillow_makes(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    kinds: list[Kind],
    tmp_path: pathlib.Path,
    mode: str,
) -> None:
    wanted = {kind.name: expected(kind, mode) for kind in kinds}
    files = {kind.name: kind.data for kind in kinds if wanted[kind.name] is not None}
    assert files
    data = write_files(tmp_path / "files", files)
    crop = {"center_crop": {"size": [HEIGHT, WIDTH]}}
    pipeline = write_pipeline(data, **sections(data, decode_stage(mode), crop))
    daemon = make_daemon(pipelines=[pipeline])
    with spdld.Loader("images", address=daemon.address) as loader:
        rows = rows_of(loader)
    assert len(rows) == len(files)
    wrong = {}
    for file, row in zip(data.files, rows, strict=True):
        pixels = wanted[file.stem]
        assert row.shape == pixels.shape, file.name
        apart = np.abs(row.astype(int) - pixels.astype(int))
        if apart.any():
            wrong[file.stem] = f"{(apart > 0).sum()} values, by up to {apart.max()}"
    assert not wrong


def test_an_image_that_a_mode_refuses_is_an_error_of_the_item(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    kinds: list[Kind],
    tmp_path: pathlib.Path,
) -> None:
    grays = [kind for kind in kinds if kind.name.startswith("gray") and ".png" in kind.name]
    files = {kind.name: kind.data for kind in grays}
    files["photo"] = next(kind.data for kind in kinds if kind.name == "rgb.jpg")
    data = write_files(tmp_path / "files", files)
    crop = {"center_crop": {"size": [HEIGHT, WIDTH]}}
    replaced = sections(data, decode_stage("gray16"), crop)
    replaced["on_error"] = {"decode": "replace", "budget": {"fraction": 0, "min": 4}}
    daemon = make_daemon(pipelines=[write_pipeline(data, **replaced)])
    with spdld.Loader("images", address=daemon.address) as loader:
        valid = [bool(ok) for batch in loader for ok in batch.valid]
    assert valid == [file.stem != "photo" for file in data.files]
    failures = daemon.ctl_json("get", "failures")
    assert {failure["uri"] for failure in failures} == {"photo.image"}
    assert "'mode: gray16' reads gray alone, and this image is RGB, 8 bits" in str(failures)


@pytest.mark.parametrize("interpolation", ["nearest", "bicubic"])
def test_masks_are_resized_by_taking_numbers(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    tmp_path: pathlib.Path,
    interpolation: str,
) -> None:
    masks = [
        np.random.default_rng(seed).integers(0, 21, (40 + seed, 50), dtype=np.uint8)
        for seed in range(4)
    ]
    files = {}
    for seed, mask in enumerate(masks):
        image = Image.fromarray(mask, "P")
        image.putpalette(bytes(range(255, 192, -1)))
        out = io.BytesIO()
        image.save(out, "PNG")
        files[f"{seed}"] = out.getvalue()
    data = write_files(tmp_path / "files", files)
    resize = {"resize": {"size": [24, 31], "interpolation": interpolation}}
    pipeline = write_pipeline(data, **sections(data, decode_stage("index"), resize))
    daemon = make_daemon(pipelines=[pipeline])
    with spdld.Loader("images", address=daemon.address) as loader:
        rows = rows_of(loader)
    for mask, row in zip(masks, rows, strict=True):
        theirs = Image.fromarray(mask).resize((31, 24), Image.Resampling.NEAREST)
        assert np.array_equal(row[..., 0], np.asarray(theirs))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_gray_of_16_bits_is_resized_as_pillow_resizes_numbers(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    tmp_path: pathlib.Path,
    interpolation: str,
) -> None:
    depths = [
        np.random.default_rng(seed).integers(0, 65536, (60, 80), dtype=np.uint16)
        for seed in range(4)
    ]
    files = {}
    for seed, depth in enumerate(depths):
        out = io.BytesIO()
        Image.fromarray(depth).save(out, "PNG")
        files[f"{seed}"] = out.getvalue()
    data = write_files(tmp_path / "files", files)
    resize = {"resize": {"size": [24, 31], "interpolation": interpolation}}
    pipeline = write_pipeline(data, **sections(data, decode_stage("gray16"), resize))
    daemon = make_daemon(pipelines=[pipeline])
    with spdld.Loader("images", address=daemon.address) as loader:
        rows = rows_of(loader)
    how = Image.Resampling[interpolation.upper()]
    for depth, row in zip(depths, rows, strict=True):
        # In floats, and rounded once: the daemon rounds along each axis.
        theirs = np.asarray(Image.fromarray(depth.astype(np.float32), "F").resize((31, 24), how))
        assert np.abs(row[..., 0] - np.clip(theirs, 0, 65535)).max() <= 1.2


def test_alpha_is_resized_as_a_channel_of_its_own(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    tmp_path: pathlib.Path,
) -> None:
    pixels = [
        np.random.default_rng(seed).integers(0, 256, (60, 80, 4), dtype=np.uint8)
        for seed in range(4)
    ]
    files = {}
    for seed, rgba in enumerate(pixels):
        out = io.BytesIO()
        Image.fromarray(rgba).save(out, "PNG")
        files[f"{seed}"] = out.getvalue()
    data = write_files(tmp_path / "files", files)
    resize = {"resize": {"size": [24, 31]}}
    pipeline = write_pipeline(data, **sections(data, decode_stage("rgba"), resize))
    daemon = make_daemon(pipelines=[pipeline])
    with spdld.Loader("images", address=daemon.address) as loader:
        rows = rows_of(loader)
    for rgba, row in zip(pixels, rows, strict=True):
        for channel in range(4):
            band = Image.fromarray(rgba[..., channel]).resize((31, 24), Image.Resampling.BILINEAR)
            assert np.array_equal(row[..., channel], np.asarray(band))

# SPDX-License-Identifier: Apache-2.0
"""What a training script sees: values, writes, kept labels, epochs, resumption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import spdld
from PIL import Image

ITEMS, BATCH = 24, 4


@pytest.fixture
def make_loader(
    make_daemon: Callable[..., Any],
    write_large_pipeline: Callable[..., Any],
    make_dataset: Callable[..., Any],
) -> Iterator[Callable[..., spdld.Loader]]:
    """make_loader(**options): at one daemon of the test's, with 24 items in batches of 4."""
    daemon = make_daemon(
        pipelines=[
            write_large_pipeline(
                make_dataset(count=ITEMS), batch={"size": BATCH, "last": "keep", "layout": "NCHW"}
            )
        ]
    )
    made: list[spdld.Loader] = []

    def make(**options: Any) -> spdld.Loader:
        made.append(spdld.Loader("images", address=daemon.address, **options))
        return made[-1]

    yield make
    for loader in made:
        loader.close()


def by_pillow(file: Any, short: int, crop: int) -> np.ndarray:
    """Resize and center_crop as torchvision has them on Pillow's images."""
    image = Image.open(file).convert("RGB")
    width, height = image.size
    if width <= height:
        size = (short, int(short * height / width))
    else:
        size = (int(short * width / height), short)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = round((size[0] - crop) / 2), round((size[1] - crop) / 2)
    return np.asarray(image.crop((left, top, left + crop, top + crop)))


@pytest.mark.parametrize("size", [(96, 64), (50, 81), (40, 40)])
def test_pixels_are_those_that_pillow_makes(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    make_dataset: Callable[..., Any],
    size: tuple[int, int],
) -> None:
    data = make_dataset(count=12, size=size, texture=True)
    stages = ["fetch", "decode_image", {"resize": {"size": 36}}, {"center_crop": {"size": 32}}]
    pipeline = write_pipeline(
        data, stages=stages, batch={"size": BATCH, "last": "keep", "layout": "NHWC"}
    )
    daemon = make_daemon(pipelines=[pipeline])
    with spdld.Loader("images", address=daemon.address) as loader:
        ours = {}
        for batch in loader:
            for index, image in zip(batch.indices.tolist(), batch["image"], strict=True):
                ours[index] = image.copy()
    assert sorted(ours) == list(range(12))
    theirs = np.stack([by_pillow(file, 36, 32) for file in data.files])
    apart = np.abs(np.stack([ours[i] for i in range(12)]).astype(int) - theirs.astype(int))
    assert apart.max() <= 4
    assert (apart <= 1).mean() >= 0.99


def test_normalize_gives_what_torchvision_defines(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    make_dataset: Callable[..., Any],
) -> None:
    data = make_dataset(count=8, texture=True)
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    plain = ["fetch", "decode_image", {"center_crop": {"size": [32, 32]}}]
    normal = [*plain, {"normalize": {"mean": mean, "std": std, "dtype": "float32"}}]
    daemon = make_daemon(
        pipelines=[
            write_pipeline(data, name="plain", stages=plain),
            write_pipeline(data, name="normal", stages=normal),
        ]
    )
    with (
        spdld.Loader("plain", address=daemon.address) as one,
        spdld.Loader("normal", address=daemon.address) as other,
    ):
        for levels, values in zip(one, other, strict=True):
            assert levels["image"].dtype == np.uint8
            assert values["image"].dtype == np.float32
            scaled = levels["image"].astype(np.float64) / 255
            for channel in range(3):
                expected = (scaled[:, channel] - mean[channel]) / std[channel]
                assert np.allclose(values["image"][:, channel], expected, atol=1e-5)


def test_numpy_views_cannot_be_written_to(make_loader: Callable[..., spdld.Loader]) -> None:
    batch = next(iter(make_loader()))
    with pytest.raises(ValueError, match="read-only"):
        batch["image"][:] = 0


def test_what_is_written_to_a_tensor_nobody_else_sees(
    make_loader: Callable[..., spdld.Loader],
) -> None:
    torch = pytest.importorskip("torch")
    reader, writer = make_loader(prefetch=2), make_loader(prefetch=2, output=("image", "label"))
    for _ in range(3):
        seen = 0
        for batch, (image, label) in zip(reader, writer, strict=True):
            assert np.array_equal(image.numpy(), batch["image"])
            assert label.tolist() == batch["label"].tolist()
            image.mul_(0).add_(7)
            assert torch.all(image == 7)
            seen += len(image)
            del batch, image, label
        assert seen == ITEMS


def test_a_tensor_outlives_its_loader(make_loader: Callable[..., spdld.Loader]) -> None:
    pytest.importorskip("torch")
    loader = make_loader(output=("image", "label"))
    image, _ = next(iter(loader))
    before = image.clone()
    loader.close()
    assert (image == before).all()
    image.zero_()
    assert not image.any()


def test_a_kept_label_pins_nothing(make_loader: Callable[..., spdld.Loader]) -> None:
    loader = make_loader(prefetch=2)
    labels = [batch["label"] for batch in loader]
    assert sum(len(label) for label in labels) == ITEMS
    assert loader.stats()["held"] == 0
    with pytest.raises(spdld.LeaseError, match="holds all 2 batches"):
        images = [batch["image"] for batch in loader]  # noqa: F841
    assert np.bincount(np.concatenate(labels)).tolist() == [8, 8, 8]


def test_each_for_is_an_epoch(make_loader: Callable[..., spdld.Loader]) -> None:
    loader = make_loader()
    assert len(loader) == ITEMS // BATCH
    orders = []
    for epoch in range(3):
        batches = [(batch.epoch, batch.step, batch.indices.tolist()) for batch in loader]
        assert [(at, step) for at, step, _ in batches] == [(epoch, s) for s in range(len(loader))]
        orders.append([index for _, _, indices in batches for index in indices])
        assert sorted(orders[-1]) == list(range(ITEMS))
    assert len({tuple(order) for order in orders}) == 3


def test_after_break_the_following_epoch_begins(make_loader: Callable[..., spdld.Loader]) -> None:
    loader, whole = make_loader(), make_loader()
    for batch in loader:
        if batch.step == 2:
            break
    assert loader.epoch == 0
    first = [batch.indices.tolist() for batch in whole if batch.epoch == 0]
    expected = [batch.indices.tolist() for batch in whole]
    batches = [(batch.epoch, batch.indices.tolist()) for batch in loader]
    assert batches == [(1, indices) for indices in expected]
    assert first[:3] != expected[:3]


def test_a_saved_state_goes_on_in_mid_epoch(make_loader: Callable[..., spdld.Loader]) -> None:
    whole = [batch.indices.tolist() for batch in make_loader()]
    loader = make_loader()
    batches = iter(loader)
    begun = [next(batches).indices.tolist() for _ in range(2)]
    state = loader.state_dict()
    loader.close()
    other = make_loader()
    other.load_state_dict(state)
    assert begun + [batch.indices.tolist() for batch in other] == whole
    assert {batch.epoch for batch in other} == {1}


def test_a_state_does_not_depend_on_what_is_prefetched_or_held(
    make_loader: Callable[..., spdld.Loader],
) -> None:
    states = []
    for prefetch in (2, 6):
        loader = make_loader(prefetch=prefetch)
        batches = iter(loader)
        held = [next(batches)]
        next(batches)
        states.append(loader.state_dict())
        assert held[0].step == 0
    runs = {state.pop("run") for state in states}
    assert len(runs) == 2, "each private job has a run of its own"
    assert states[0] == states[1]
    assert (states[0]["epoch"], states[0]["step"], states[0]["position"]) == (0, 2, 2 * BATCH)


def test_a_state_of_another_dataset_is_refused(
    make_loader: Callable[..., spdld.Loader],
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    make_dataset: Callable[..., Any],
) -> None:
    loader = make_loader()
    next(iter(loader))
    state = loader.state_dict()
    other = make_daemon(pipelines=[write_pipeline(make_dataset(count=ITEMS + 6))])
    with spdld.Loader("images", address=other.address) as wrong:
        wrong.load_state_dict(state)
        with pytest.raises(spdld.PipelineError, match="had 24 items, now it has 30"):
            next(iter(wrong))


def test_without_a_daemon_the_error_says_how_to_start_one(tmp_path: Any) -> None:
    loader = spdld.Loader("images", address=tmp_path, timeout=0.5)
    with pytest.raises(spdld.ConnectionError, match="start one"):
        next(iter(loader))

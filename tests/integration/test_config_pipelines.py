# SPDX-License-Identifier: Apache-2.0
"""The pipelines of config/pipelines run as they are on data that lie as they say."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import numpy as np
import pytest
import spdld
from PIL import Image

PIPELINES = daemon_module.REPOSITORY / "config/pipelines"
ROWS = 4


def picture(index: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (80, 60), (index * 40, 100, 50)).save(out, "jpeg")
    return out.getvalue()


def write_images(root: pathlib.Path) -> None:
    for part in ("train", "val"):
        for i in range(ROWS):
            directory = root / part / ["cat", "dog"][i % 2]
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{i}.JPEG").write_bytes(picture(i))


def write_shards(root: pathlib.Path) -> None:
    with tarfile.open(root / "00000.tar", "w") as tar:
        for i in range(ROWS + 1):
            parts = {"jpg": picture(i), "json": b"{}", "txt": f"caption {i}".encode()}
            if i == ROWS:
                del parts["txt"]
            for suffix, content in parts.items():
                info = tarfile.TarInfo(f"{i:06}.{suffix}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def write_coco(root: pathlib.Path) -> None:
    (root / "annotations").mkdir()
    (root / "train2017").mkdir()
    for i in range(ROWS):
        (root / f"train2017/{i}.jpg").write_bytes(picture(i))
    annotations = [
        # Whatever the crop is, something of a box over all of the image is in it.
        {"id": i, "image_id": i, "category_id": 3, "bbox": [0, 0, 80, 60], "area": 1, "iscrowd": 0}
        for i in range(1, ROWS)
    ]
    images = [{"id": i, "file_name": f"{i}.jpg", "width": 80, "height": 60} for i in range(ROWS)]
    categories = [{"id": 3, "name": "cat"}]
    (root / "annotations/instances_train2017.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )


WRITERS = {
    "images-encoded": write_images,
    "images-train": write_images,
    "images-val": write_images,
    "image-text": write_shards,
    "detection": write_coco,
}


@pytest.fixture
def load(daemon: Any, tmp_path: pathlib.Path) -> Callable[[str], list[Any]]:
    def make(name: str) -> list[Any]:
        if not any(tmp_path.iterdir()):
            WRITERS[name](tmp_path)
        path = PIPELINES / f"{name}.yaml"
        values = {"root": str(tmp_path), "batch_size": 2, "size": 32}
        if name == "images-encoded":
            del values["size"]
        with spdld.Loader(path, vars=values, address=daemon.address) as loader:
            return list(loader)

    return make


def test_each_pipeline_is_run_by_a_test() -> None:
    assert {path.stem for path in PIPELINES.glob("*.yaml")} == WRITERS.keys()


def test_images_are_read_with_their_classes(load: Callable[..., Any]) -> None:
    for name in ("images-train", "images-val"):
        batches = load(name)
        assert [batch["image"].shape for batch in batches] == [(2, 3, 32, 32)] * 2
        labels = [label for batch in batches for label in batch["label"].tolist()]
        assert sorted(labels) == [0, 0, 1, 1]


def test_images_are_read_as_they_are_stored(load: Callable[..., Any]) -> None:
    stored = [bytes(image) for batch in load("images-encoded") for image in batch["image"]]
    assert sorted(stored) == sorted(picture(i) for i in range(ROWS))


def test_images_are_read_with_their_captions(load: Callable[..., Any]) -> None:
    batches = load("image-text")
    captions = {
        int(item): batch["caption"][row]
        for batch in batches
        for row, item in enumerate(batch.indices)
    }
    assert captions == {i: f"caption {i}" for i in range(ROWS)}
    assert all(batch["image"].shape == (2, 3, 32, 32) for batch in batches)


def test_images_are_read_with_their_boxes(load: Callable[..., Any]) -> None:
    rows = 0
    for batch in load("detection"):
        assert batch["image"].shape == (2, 3, 32, 32)
        for row, item in enumerate(batch.indices):
            boxes = np.reshape(batch["boxes"][row], (-1, 4))
            assert boxes.tolist() == ([] if item == 0 else [[0, 0, 32, 32]])
            assert batch["labels"][row].tolist() == [0] * len(boxes)
            rows += 1
    assert rows == ROWS

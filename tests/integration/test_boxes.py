# SPDX-License-Identifier: Apache-2.0
"""Boxes that follow their image: as torchvision has them, beside masks, and when they are wrong."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld
from box_samples import GOLDENS, PIPELINES, SAMPLES, Sample, mask_digest, write_pipeline
from PIL import Image

PIXEL = 1e-4


@pytest.fixture(scope="module")
def goldens() -> dict[str, Any]:
    return dict(json.loads(GOLDENS.read_text()))


@pytest.mark.parametrize("name", PIPELINES)
def test_boxes_and_masks_are_those_of_torchvision(
    daemon: Any, tmp_path: pathlib.Path, goldens: dict[str, Any], name: str
) -> None:
    path = write_pipeline(tmp_path / name, name)
    seen = 0
    with spdld.Loader(path, address=daemon.address) as loader:
        for batch in loader:
            for row, number in enumerate(batch.indices):
                golden = goldens[name][number]
                assert batch["labels"][row].tolist() == golden["labels"], number
                boxes = batch["boxes"][row]
                assert boxes.dtype == np.float32 and boxes.shape == (len(golden["labels"]), 4)
                expected = np.array(golden["boxes"]).reshape(-1, 4)
                assert np.abs(boxes - expected).max(initial=0) <= PIXEL, number
                mask = batch["mask"][row]
                assert [*mask.shape[1:], mask_digest(mask)] == golden["mask"], number
                seen += 1
    assert seen == SAMPLES


def test_goldens_have_boxes_of_every_fate(goldens: dict[str, Any]) -> None:
    given = kept = 0
    for name in PIPELINES:
        given += sum(len(Sample(name, number).edges) for number in range(SAMPLES))
        kept += sum(len(golden["labels"]) for golden in goldens[name])
    assert given > 1000 and 0.3 * given < kept < 0.9 * given


BOXES = [[2, 4, 10, 12], [0, 0, 16, 12], [12, 2, 20, 4]]


@pytest.fixture
def load(daemon: Any, tmp_path: pathlib.Path) -> Callable[..., spdld.Loader]:
    """Items whose boxes the test gives, in images of 16 x 12 pixels."""

    def make(
        rows: list[dict[str, Any]],
        stages: str = "bounding_boxes",
        batch: str = "size: 2",
        values: str = "boxes: {column: boxes, type: float64_list}",
    ) -> spdld.Loader:
        Image.new("RGB", (16, 12)).save(tmp_path / "one.png")
        (tmp_path / "table.jsonl").write_text(
            "".join(json.dumps({"image": "one.png", **row}) + "\n" for row in rows)
        )
        path = tmp_path / "boxed.yaml"
        path.write_text(
            "pipeline: boxed\nsource: {table: {file: table.jsonl, uri: image, values: {"
            f"{values}}}}}}}\nstages: [fetch, decode_image, {stages}, {{resize: {{size: [6, 8]}}}}]\n"
            f"batch: {{{batch}}}\non_error: {{decode: fail}}\n"
        )
        return spdld.Loader(path, address=daemon.address)

    return make


def flat(boxes: list[list[float]]) -> list[float]:
    return [number for box in boxes for number in box]


def test_boxes_are_padded_with_what_stands_beside_them(load: Callable[..., Any]) -> None:
    rows = [
        {"boxes": flat(BOXES), "labels": [7, 8, 9], "area": [0.5, 1.5, 2.5]},
        {"boxes": [], "labels": [], "area": []},
    ]
    loader = load(
        rows,
        stages="{bounding_boxes: {with: [labels, area], min_area: 4.5}}",
        values="boxes: {column: boxes, type: float64_list}, labels: labels, area: area",
        batch="size: 2, collate: {boxes: {pad: -1}, labels: {pad: -1}, area: ragged}",
    )
    with loader:
        batch = next(iter(loader))
        assert batch["boxes"].tolist() == [[[1, 2, 5, 6], [0, 0, 8, 6]], [[-1] * 4] * 2]
        assert batch["boxes_length"].tolist() == [2, 0]
        assert batch["labels"].tolist() == [[7, 8], [-1, -1]]
        assert [row.tolist() for row in batch["area"]] == [[0.5, 1.5], []]


@pytest.mark.parametrize(
    ("rows", "stages", "told"),
    [
        ([[1, 2, 3]], "bounding_boxes", r"item 0 .*'boxes' has 3 numbers, and each box takes 4"),
        ([[0, 0, 4, 4, 9, 1, 4, 2]], "bounding_boxes", r"boxes\[1\] is \[9, 1, 4, 2\].*xyxy"),
        (
            [[0, 0, 4, 4]],
            "{bounding_boxes: {normalized: true}}",
            r"boxes\[0\] .* more than shares of an image",
        ),
    ],
)
def test_boxes_that_are_none_fail_by_their_item(
    load: Callable[..., Any], rows: list[list[float]], stages: str, told: str
) -> None:
    with pytest.raises(spdld.PipelineError, match=told):
        next(iter(load([{"boxes": row} for row in rows], stages=stages, batch="size: 1")))


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        ("{bounding_boxes: {field: bboxes}}", "no field 'bboxes'; there are 'image', 'boxes'"),
        ("{bounding_boxes: {field: image}}", "the field 'image' is decoded already"),
        ("{bounding_boxes: {format: xyhw}}", "xyxy"),
        ("{resize: {size: 6}}, bounding_boxes", "'bounding_boxes' must come before 'resize'"),
        ("{resize: {size: 6, fields: boxes}}", "put 'bounding_boxes: {field: boxes}' before it"),
        (
            "bounding_boxes, {normalize: {mean: 0, std: 1, fields: boxes}}",
            "'normalize' works on images, not on boxes",
        ),
    ],
)
def test_stages_that_do_not_fit_boxes_are_refused(
    load: Callable[..., Any], stages: str, told: str
) -> None:
    with pytest.raises(spdld.PipelineError, match=told):
        len(load([{"boxes": flat(BOXES)}], stages=stages))


def test_boxes_without_an_image_are_refused(daemon: Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "one.png").write_bytes(b"")
    (tmp_path / "table.jsonl").write_text('{"image": "one.png", "boxes": [1.5]}\n')
    path = tmp_path / "boxed.yaml"
    path.write_text(
        "pipeline: boxed\nsource: {table: {file: table.jsonl, uri: image, values: {boxes: boxes}}}\n"
        "stages: [fetch, bounding_boxes]\nbatch: {size: 1, max_bytes: 1MiB}\n"
    )
    with pytest.raises(spdld.PipelineError, match="'boxes' lies in the pixels of an image, and"):
        len(spdld.Loader(path, address=daemon.address))


def test_annotations_of_coco_follow_their_images(daemon: Any, tmp_path: pathlib.Path) -> None:
    sizes = [(40, 30), (30, 40), (20, 20)]
    boxes = [[[4, 6, 10, 12], [0, 0, 2, 3], [36, 28, 4, 2]], [], [[5, 5, 10, 10]]]
    annotations = []
    for i, (width, height) in enumerate(sizes):
        Image.new("RGB", (width, height)).save(tmp_path / f"{i}.jpg")
        for x, y, w, h in boxes[i]:
            each = {"bbox": [x, y, w, h], "area": w * h, "iscrowd": 0, "category_id": 3}
            annotations.append({"id": 100 + len(annotations), "image_id": i, **each})
    images = [
        {"id": i, "file_name": f"{i}.jpg", "width": width, "height": height}
        for i, (width, height) in enumerate(sizes)
    ]
    (tmp_path / "instances.json").write_text(
        json.dumps(
            {
                "images": images,
                "annotations": annotations,
                "categories": [{"id": 3, "name": "cat"}],
            }
        )
    )
    path = tmp_path / "coco.yaml"
    path.write_text(
        "pipeline: coco\nsource: {coco: {annotations: instances.json, root: .}}\n"
        "stages: [fetch, decode_image, {bounding_boxes: {with: [labels, ids, iscrowd, area]}},\n"
        "  {center_crop: {size: 20}}, {resize: {size: [10, 40]}}]\nbatch: {size: 3}\n"
    )
    with spdld.Loader(path, address=daemon.address) as loader:
        batch = next(iter(loader))
        assert [row.tolist() for row in batch["boxes"]] == [
            [[0, 0.5, 8, 6.5]],
            [],
            [[10, 2.5, 30, 7.5]],
        ]
        assert [row.tolist() for row in batch["ids"]] == [[100], [], [103]]
        assert [row.tolist() for row in batch["area"]] == [[120], [], [100]]
        assert [row.tolist() for row in batch["labels"]] == [[0], [], [0]]

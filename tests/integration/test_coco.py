# SPDX-License-Identifier: Apache-2.0
"""COCO annotation files: images with boxes, labels and what else is known of them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld
from PIL import Image

# By image: the boxes as the file has them (x, y, width, height), and their categories' ids.
BOXES: list[list[tuple[list[float], int]]] = [
    [([1, 2, 3, 4], 7), ([0, 0, 16, 12], 90)],
    [],
    [([2.5, 1.25, 5, 5.5], 3)],
]
CATEGORIES = {7: "dog", 3: "cat", 90: "kite"}
LABELS = {3: 0, 7: 1, 90: 2}


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "images").mkdir()
    images, annotations = [], []
    for i, boxes in enumerate(BOXES):
        Image.new("RGB", (16, 12), (i * 10,) * 3).save(tmp_path / "images" / f"{i}.png")
        images.append({"id": 100 - i, "file_name": f"{i}.png", "width": 16, "height": 12})
        for box, category in boxes:
            annotations.append(
                {
                    "id": len(annotations) + 1000,
                    "image_id": 100 - i,
                    "category_id": category,
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
    write_annotations(tmp_path, images, annotations)
    return tmp_path


def write_annotations(data: pathlib.Path, images: Any, annotations: Any) -> None:
    categories = [{"id": number, "name": name} for number, name in CATEGORIES.items()]
    text = json.dumps({"images": images, "annotations": annotations, "categories": categories})
    (data / "instances.json").write_text(text)


def read_annotations(data: pathlib.Path) -> Any:
    return json.loads((data / "instances.json").read_text())


def write(data: pathlib.Path, more: str = "", name: str = "coco") -> pathlib.Path:
    path = data / f"{name}.yaml"
    path.write_text(
        f"pipeline: {name}\nsource: {{coco: {{annotations: instances.json, root: images}}}}\n"
        f"stages: [fetch, decode_image]\nbatch: {{size: 3}}\n{more}"
    )
    return path


@pytest.fixture
def load(daemon: Any) -> Callable[..., spdld.Loader]:
    def make(pipeline: Any, **options: Any) -> spdld.Loader:
        return spdld.Loader(pipeline, address=daemon.address, **options)

    return make


def write_sized(data: pathlib.Path, more: str = "") -> pathlib.Path:
    path = write(data, more)
    text = path.read_text().replace("decode_image]", "decode_image, {resize: {size: [6, 8]}}]")
    path.write_text(text)
    return path


def test_images_come_with_what_the_annotations_say(
    load: Callable[..., Any], data: pathlib.Path, daemon: Any
) -> None:
    with load(write_sized(data)) as loader:
        assert loader.classes == ["cat", "dog", "kite"]
        (batch,) = list(loader)
        assert batch["image_id"].tolist() == [100, 99, 98]
        assert batch["width"].tolist() == [16] * 3
        for row, boxes in enumerate(BOXES):
            assert batch["labels"][row].tolist() == [LABELS[category] for _, category in boxes]
            assert batch["area"][row].tolist() == [box[2] * box[3] for box, _ in boxes]
            corners = [[x, y, x + w, y + h] for (x, y, w, h), _ in boxes]
            assert np.array_equal(
                np.reshape(batch["boxes"][row], (-1, 4)), np.reshape(corners, (-1, 4))
            )
        assert batch.uris == ["0.png", "1.png", "2.png"]
    assert daemon.ctl_json("get", "classes", "coco") == [
        {"label": 0, "category_id": 3, "class": "cat"},
        {"label": 1, "category_id": 7, "class": "dog"},
        {"label": 2, "category_id": 90, "class": "kite"},
    ]


def test_images_are_selected_by_the_names_of_their_classes(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    path = write_sized(data)
    select = "  select: {where: \"'dog' in labels\"}"
    text = path.read_text().replace("source: {coco", "source:\n  coco", 1)
    text = text.replace("root: images}}", "root: images}\n" + select).replace("size: 3", "size: 1")
    path.write_text(text)
    with load(path) as loader:
        assert [batch.uris for batch in loader] == [["0.png"]]


def test_a_box_without_an_area_is_left_out_and_counted(
    load: Callable[..., Any], data: pathlib.Path, daemon: Any
) -> None:
    file = read_annotations(data)
    file["annotations"][0]["bbox"] = [1, 2, 0, 4]
    write_annotations(data, file["images"], file["annotations"])
    with load(write_sized(data)) as loader:
        (batch,) = list(loader)
        assert [len(labels) for labels in batch["labels"]] == [1, 0, 1]
    assert "1 box was left out, such as annotation 1000 of image 100" in daemon.log()


def test_a_box_without_an_area_is_an_error_where_nothing_may_be_left_out(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    file = read_annotations(data)
    file["annotations"][0]["bbox"] = [1, 2, 0, 4]
    write_annotations(data, file["images"], file["annotations"])
    with pytest.raises(spdld.PipelineError, match=r"annotation 1000 of image 100.*no area"):
        len(load(write_sized(data, "on_error: {decode: fail}\n")))


def test_annotations_as_tools_write_them_are_read(
    load: Callable[..., Any], data: pathlib.Path, daemon: Any
) -> None:
    file = read_annotations(data)
    images, annotations = file["images"], file["annotations"]
    file["annotations"][0].update(image_id=4711)
    write_annotations(data, [*images, images[0]], annotations)
    with load(write_sized(data)) as loader:
        batch = next(iter(loader))
        assert batch["image_id"].tolist() == [100, 99, 98]
        assert 1000 not in [int(of) for ids in batch["ids"] for of in ids]
    daemon.await_log(
        "1 annotation was left out, whose image is not in the file, such as "
        "annotation 1000 of image 4711"
    )
    daemon.await_log("1 image comes again with the same id and file, and is one item")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda file: file["images"].clear(), "no image"),
        (lambda file: file["annotations"][0].update(category_id=5), "categor.* 5"),
        (lambda file: file["images"][0].update(file_name="../x.png"), r"\.\./x\.png"),
        (lambda file: file["images"][1].update(id=100), "100"),
    ],
)
def test_annotations_that_contradict_themselves_are_refused_by_name(
    load: Callable[..., Any], data: pathlib.Path, change: Callable[[Any], None], told: str
) -> None:
    file = read_annotations(data)
    change(file)
    write_annotations(data, file["images"], file["annotations"])
    with pytest.raises(spdld.PipelineError, match=rf"instances.json.*({told})"):
        len(load(write_sized(data)))


def test_an_image_whose_file_is_missing_is_its_items_error(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    path = write_sized(data, "on_error: {decode: fail}\n")
    with load(path) as loader:
        assert len(loader) == 1
    (data / "images/1.png").unlink()
    with pytest.raises(
        spdld.PipelineError, match=r"1.png is not there, though the dataset names it"
    ):
        list(load("coco"))


def test_what_was_applied_of_annotations_survives_a_restart_and_an_edit(
    load: Callable[..., Any], data: pathlib.Path, daemon: Any
) -> None:
    with load(write_sized(data), job="run") as loader:
        before = [row.tolist() for batch in loader for row in batch["boxes"]]
    file = read_annotations(data)
    file["annotations"][0]["bbox"] = [5, 5, 1, 1]
    write_annotations(data, file["images"], file["annotations"])
    daemon.kill()
    daemon.start()
    with load("coco", job="again") as loader:
        assert [row.tolist() for batch in loader for row in batch["boxes"]] == before
    assert daemon.ctl_json("get", "classes", "coco")[0]["category_id"] == 3

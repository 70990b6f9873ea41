# SPDX-License-Identifier: Apache-2.0
"""'spdlctl preview' shows all that belongs to an image: its caption, mask and boxes."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from PIL import Image

SIZE = 128
GREY = (90, 90, 90)


@pytest.fixture
def pipeline(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two images of 128 x 128; what the second one has, the first has not."""
    for i in range(2):
        Image.new("RGB", (SIZE, SIZE), GREY).save(tmp_path / f"{i}.png")
        mask = Image.new("L", (SIZE, SIZE), 0)
        if i == 1:
            mask.paste(3, (64, 0, SIZE, 32))
        mask.save(tmp_path / f"{i}-mask.png")
    rows = [
        {"path": "0.png", "mask": "0-mask.png", "text": "nothing", "box": [], "labels": []},
        {
            "path": "1.png",
            "mask": "1-mask.png",
            "text": "a box ä\n" + "x" * 100,
            "box": [80, 64, 40, 20],
            "labels": [2],
        },
    ]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = tmp_path / "train.yaml"
    file.write_text("""\
pipeline: train
source:
  table:
    file: items.jsonl
    uri: {image: path, mask: mask}
    values:
      caption: text
      boxes: {column: box, type: float64_list}
      labels: {column: labels, type: int64_list}
stages:
  - fetch
  - decode_image
  - decode_image: {field: mask, mode: index}
  - bounding_boxes: {format: xywh, with: [labels]}
  - resize: {size: [128, 128]}
batch: {size: 2}
""")
    return file


def test_images_are_drawn_with_their_masks_and_boxes(
    daemon: Any, pipeline: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    printed = daemon.ctl("preview", "-f", pipeline, "-o", tmp_path / "grid.png").stdout
    assert "with 'mask' and 'boxes' drawn on them" in printed
    assert "nothing" in printed and "a box ä\\n" + "x" * 50 in printed and "..." in printed
    with Image.open(tmp_path / "grid.png") as grid:
        first, second = (SIZE // 2, SIZE // 2), (SIZE + 4, 0)
        assert grid.getpixel(first) == GREY
        # The mask's class 3 and the box's label 2 have the third colour.
        assert grid.getpixel((second[0] + 100, 16)) == (
            (90 + 255) // 2 + 1,
            (90 + 225) // 2 + 1,
            58,
        )
        assert grid.getpixel((second[0] + 80, 70)) == (255, 225, 25)
        assert grid.getpixel((second[0] + 119, 83)) == (255, 225, 25)
        assert grid.getpixel((second[0] + 120, 84)) == GREY
        assert grid.getpixel((second[0] + 100, 74)) == GREY


def test_programs_get_the_texts_whole(daemon: Any, pipeline: pathlib.Path) -> None:
    rows = daemon.ctl_json("preview", "-f", pipeline)["rows"]
    assert [row["texts"]["caption"] for row in rows] == ["nothing", "a box ä\n" + "x" * 100]


def test_padded_boxes_are_drawn_without_their_padding(
    daemon: Any, pipeline: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    text = pipeline.read_text().replace(
        "batch: {size: 2}", "batch: {size: 2, collate: {boxes: {pad: -1}}}"
    )
    pipeline.write_text(text)
    daemon.ctl("preview", "-f", pipeline, "-o", tmp_path / "grid.png")
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.getpixel((SIZE + 4 + 80, 70)) == (255, 225, 25)
        assert grid.crop((40, 40, SIZE, SIZE)).getcolors() == [(88 * 88, GREY)]

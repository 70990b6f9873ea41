# SPDX-License-Identifier: Apache-2.0
"""Values that are taken out of a part that is JSON: texts, numbers, lists, boxes."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
import spdld
from PIL import Image

ROWS = 10
VALUES = (
    "caption: /caption, width: {pointer: /size/0, type: int64}, "
    "score: {pointer: /score, type: float64}, good: {pointer: /a~1b, type: bool}, "
    "tokens: {pointer: /tokens, type: int64_list}"
)
MANY = "size: 4, last: keep, max_bytes: 1MiB"


def document(i: int) -> dict[str, Any]:
    return {
        "caption": f"bild {i} {'ä' * i}",
        "size": [100 + i, 7],
        "score": i / 8,
        "a/b": i % 2 == 0,
        "tokens": list(range(i)),
        "objects": {"boxes": [[j, 0, j + 2, 2 + i] for j in range(i % 4)], "kind": [1] * (i % 4)},
        "more": {"deep": [{"x": None}]},
    }


@pytest.fixture
def load(daemon: Any, tmp_path: pathlib.Path) -> Callable[..., spdld.Loader]:
    def make(
        stages: str,
        batch: str = MANY,
        documents: list[str] | None = None,
        on_error: str = "fail",
    ) -> spdld.Loader:
        Image.new("RGB", (16, 12)).save(tmp_path / "one.png")
        texts = documents or [json.dumps(document(i), indent=1) for i in range(ROWS)]
        lines = ["image,meta"]
        for i, text in enumerate(texts):
            (tmp_path / f"{i}.json").write_bytes(text.encode("utf-8", "surrogateescape"))
            lines.append(f"one.png,{i}.json")
        (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
        path = tmp_path / "described.yaml"
        path.write_text(
            "pipeline: described\nsource: {table: {file: table.csv, uri: {image: image, meta: meta}}}\n"
            f"stages: [fetch, decode_image, {stages}, {{resize: {{size: [6, 8]}}}}]\n"
            f"batch: {{{batch}}}\non_error: {{decode: {on_error}}}\n"
        )
        return spdld.Loader(path, address=daemon.address)

    return make


def decode(values: str, more: str = "") -> str:
    return f"{{decode_json: {{field: meta, values: {{{values}}}{more}}}}}"


def test_fields_have_the_types_that_are_declared(load: Callable[..., Any]) -> None:
    with load(decode(VALUES)) as loader:
        rows = 0
        for batch in loader:
            assert "meta" not in batch
            documents = [document(i) for i in batch.indices]
            assert batch["caption"] == [each["caption"] for each in documents]
            assert batch["width"].tolist() == [each["size"][0] for each in documents]
            assert batch["score"].tolist() == [each["score"] for each in documents]
            assert batch["good"].tolist() == [each["a/b"] for each in documents]
            assert [row.tolist() for row in batch["tokens"]] == [
                each["tokens"] for each in documents
            ]
            assert [str(batch[name].dtype) for name in ("width", "score", "good")] == [
                "int64",
                "float64",
                "bool",
            ]
            rows += batch.rows
        assert rows == ROWS


def test_the_document_itself_can_be_kept(load: Callable[..., Any]) -> None:
    with load(decode("caption: /caption", ", keep: true")) as loader:
        for batch in loader:
            assert [json.loads(text) for text in batch["meta"]] == [
                document(i) for i in batch.indices
            ]


def test_lists_of_a_document_are_collated_as_others_are(load: Callable[..., Any]) -> None:
    batch_spec = f"{MANY}, collate: {{tokens: {{pad: -1}}, caption: bytes}}"
    with load(decode(VALUES), batch=batch_spec) as loader:
        for batch in loader:
            lengths = batch["tokens_length"].tolist()
            assert lengths == list(batch.indices)
            for row, length in zip(batch["tokens"], lengths, strict=True):
                assert row[:length].tolist() == list(range(length))
                assert (row[length:] == -1).all()
            assert bytes(batch["caption"][0]).decode() == document(batch.indices[0])["caption"]


def test_boxes_of_a_document_move_with_their_image(load: Callable[..., Any]) -> None:
    values = (
        "boxes: {pointer: /objects/boxes, type: float64_list}, "
        "kinds: {pointer: /objects/kind, type: int64_list}"
    )
    with load(f"{decode(values)}, {{bounding_boxes: {{with: kinds, min_size: 0.5}}}}") as loader:
        for batch in loader:
            for i, boxes, kinds in zip(batch.indices, batch["boxes"], batch["kinds"], strict=True):
                given = document(i)["objects"]["boxes"]
                assert boxes.tolist() == [[edge / 2 for edge in box] for box in given]
                assert kinds.tolist() == [1] * len(given)


def test_fields_that_are_made_are_the_same_in_every_epoch(load: Callable[..., Any]) -> None:
    with load(decode(VALUES)) as loader:
        first = [batch["caption"] for batch in loader]
        assert [batch["caption"] for batch in loader] == first


GOOD = '{"caption": "x", "width": 3}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"width": 3}', r"'meta' has nothing at '/caption' for the field 'caption'"),
        ('{"caption": "x",\n"width": "3"}', r"at '/width' \(line 2, column 12\) is text, and"),
        ('{"caption": "x", "width": 3', r"'meta' cannot be read: this is no JSON"),
        ('{"caption": "\udcff", "width": 3}', r"no text at line 1, column 14: the byte"),
        ("[" * 100, r"nested deeper than 64"),
        ('{"caption": "' + "x" * 200 + '", "width": 3}', r"has 227 bytes, .*max_bytes is 150"),
        ("", r"cannot be read"),
    ],
)
def test_a_document_that_is_wrong_is_an_error_of_its_item(
    load: Callable[..., Any], text: str, told: str
) -> None:
    stages = decode("caption: /caption, width: {pointer: /width, type: int64}", ", max_bytes: 150")
    loader = load(stages, documents=[GOOD, text], batch="size: 1, max_bytes: 1KiB")
    with loader, pytest.raises(spdld.PipelineError, match=r"item 1 .*" + told):
        for _ in loader:
            pass


def test_items_whose_document_is_wrong_are_replaced(load: Callable[..., Any]) -> None:
    documents = [GOOD, "{", GOOD, "[]"]
    stages = decode("caption: /caption")
    with load(stages, documents=documents, batch=MANY, on_error="replace") as loader:
        for batch in loader:
            assert batch.valid.tolist() == [True, False, True, False]
            assert batch["caption"] == ["x"] * 4


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        ("{decode_json: {field: meta}}", "decode_json.values"),
        (decode(""), "must name 1 to 64 fields"),
        (decode("caption: caption"), "'caption' is no JSON pointer: it begins with a '/'"),
        (decode("n: {pointer: /n, type: int32}"), "int64"),
        (decode("n: {type: int64}"), "pointer"),
        (decode("image: /n"), "there is a field 'image' already"),
        ("{decode_json: {values: {n: /n}}}", "write 'decode_json: {field: NAME}'"),
        (f"{decode('n: /n')}, {decode('m: /m')}", "'meta' is decoded already"),
        (decode("n: /n") + ", {normalize: {mean: 0, std: 1, fields: meta}}", "works on decoded"),
    ],
)
def test_stages_that_cannot_be_are_refused(
    load: Callable[..., Any], stages: str, told: str
) -> None:
    with pytest.raises(spdld.PipelineError, match=told):
        len(load(stages))


def test_documents_of_tar_shards_hold_boxes_of_their_images(
    daemon: Any, tmp_path: pathlib.Path
) -> None:
    image = io.BytesIO()
    Image.new("RGB", (16, 12)).save(image, "png")
    with tarfile.open(tmp_path / "train-0.tar", "w") as tar:
        for i in range(ROWS):
            parts = {"png": image.getvalue(), "json": json.dumps(document(i)).encode()}
            for suffix, content in parts.items():
                info = tarfile.TarInfo(f"{i:03}.{suffix}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    path = tmp_path / "shards.yaml"
    values = "caption: /caption, boxes: {pointer: /objects/boxes, type: float64_list}"
    path.write_text(
        "pipeline: shards\n"
        "source: {webdataset: {shards: train-0.tar, fields: {image: png, meta: json}}}\n"
        f"stages: [fetch, decode_image, {decode(values)}, bounding_boxes,\n"
        "  {random_horizontal_flip: {p: 1}}, {resize: {size: [24, 32]}}]\n"
        f"shuffle: none\nbatch: {{{MANY}}}\n"
    )
    with spdld.Loader(path, address=daemon.address) as loader:
        rows = 0
        for batch in loader:
            for i, caption, boxes in zip(
                batch.indices, batch["caption"], batch["boxes"], strict=True
            ):
                given = document(i)
                assert caption == given["caption"]
                assert boxes.tolist() == [
                    [32 - 2 * right, 2 * top, 32 - 2 * left, 2 * min(bottom, 12)]
                    for left, top, right, bottom in given["objects"]["boxes"]
                ]
                rows += 1
        assert rows == ROWS

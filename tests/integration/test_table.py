# SPDX-License-Identifier: Apache-2.0
"""Tables: files that columns name, and captions, numbers and lists that stand in the table."""

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

ROWS = 12
CAPTIONS = [f"a picture of {'ä' * i} number {i}" for i in range(ROWS)]
SCORES = [i / 4 for i in range(ROWS)]
TOKENS = [list(range(i % 5)) for i in range(ROWS)]
DECODE = "[fetch, decode_image, {resize: {size: [8, 8]}}]"


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory with images and table.csv, of which row i has the grey i * 10."""
    for i in range(ROWS):
        path = tmp_path / "pictures" / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (16, 12), (i * 10,) * 3).save(path)
    with (tmp_path / "table.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "kind", "caption", "score", "tokens"])
        for i in range(ROWS):
            kind = "odd" if i % 2 else "even"
            writer.writerow(
                [f"pictures/{i}.png", kind, CAPTIONS[i], SCORES[i], json.dumps(TOKENS[i])]
            )
    return tmp_path


def write(
    data: pathlib.Path,
    select: str = "",
    batch: str = "size: 4",
    table: str = "file: table.csv, uri: path, label: kind",
    stages: str = DECODE,
    name: str = "pairs",
) -> pathlib.Path:
    path = data / f"{name}.yaml"
    path.write_text(
        f"pipeline: {name}\n"
        f"source:\n  table: {{{table}, values: {{caption: caption, score: score, tokens: tokens}}}}\n"
        + (f"  select: {select}\n" if select else "")
        + f"stages: {stages}\nbatch: {{{batch}}}\n"
    )
    return path


@pytest.fixture
def load(daemon: Any) -> Callable[..., spdld.Loader]:
    def make(pipeline: Any, **options: Any) -> spdld.Loader:
        return spdld.Loader(pipeline, address=daemon.address, **options)

    return make


def test_rows_come_with_their_captions_numbers_and_lists(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    with load(write(data)) as loader:
        assert loader.num_items == ROWS
        assert loader.class_to_idx == {"even": 0, "odd": 1}
        rows = 0
        for batch in loader:
            index = batch.indices
            assert (batch["image"][:, 0, 0, 0] == index * 10).all()
            assert (batch["label"] == index % 2).all()
            assert batch["caption"] == [CAPTIONS[i] for i in index]
            assert batch["score"].tolist() == [SCORES[i] for i in index]
            assert [row.tolist() for row in batch["tokens"]] == [TOKENS[i] for i in index]
            assert batch.uris == [f"pictures/{i}.png" for i in index]
            rows += batch.rows
        assert rows == ROWS


def test_lists_are_padded_to_the_longest_of_each_batch(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    batch_spec = "size: 4, collate: {tokens: {pad: -1, multiple_of: 2}, caption: bytes}"
    with load(write(data, batch=batch_spec)) as loader:
        for batch in loader:
            expected = [TOKENS[i] for i in batch.indices]
            width = (max(len(row) for row in expected) + 1) // 2 * 2
            assert batch["tokens"].shape == (4, width)
            padded = [row + [-1] * (width - len(row)) for row in expected]
            assert batch["tokens"].tolist() == padded
            assert batch["tokens_length"].tolist() == [len(row) for row in expected]
            texts = [CAPTIONS[i].encode() for i in batch.indices]
            assert [bytes(row) for row in batch["caption"]] == texts


def test_a_selection_is_what_its_condition_says(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    select = "{where: \"score >= 0.5 and label == 'odd'\", skip: 1}"
    with load(write(data, select=select, batch="size: 1")) as loader:
        chosen = [i for i in range(ROWS) if SCORES[i] >= 0.5 and i % 2][1:]
        assert loader.num_items == len(chosen)
        assert [batch["score"][0] for batch in loader] == [SCORES[i] for i in chosen]


def test_parts_of_a_split_are_disjoint_and_together_all(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    parts = []
    for part in ("train", "val"):
        select = f"{{split: {{part: {part}, val: 0.4}}}}"
        with load(write(data, select=select, batch="size: 1", name=part)) as loader:
            parts.append({uri for batch in loader for uri in batch.uris})
    assert not parts[0] & parts[1] and len(parts[0] | parts[1]) == ROWS


def test_a_selection_that_leaves_nothing_says_which_step_did(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    with pytest.raises(spdld.PipelineError, match="where"):
        len(load(write(data, select='{where: "score > 100"}')))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("file: none.csv, uri: path", "none.csv"),
        ("file: table.csv, uri: paht", "table.csv:1:.*'path'"),
        ("file: table.csv, uri: path, label: caption, classes: [a, b]", "table.csv:2:"),
        ("file: table.csv, uri: path, root: /not/there", "source.table.root"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_by_its_place(
    load: Callable[..., Any], data: pathlib.Path, table: str, told: str
) -> None:
    with pytest.raises(spdld.PipelineError, match=told):
        len(load(write(data, table=table)))


def test_a_row_whose_file_is_gone_fails_by_its_name(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    path = write(data)
    path.write_text(path.read_text() + "on_error: {decode: fail}\n")
    with load(path) as loader:
        assert len(loader) == 3
    (data / "pictures/3.png").unlink()
    with pytest.raises(spdld.PipelineError, match=r"pictures/3.png is not there"):
        for _ in load("pairs"):
            pass


def test_a_row_that_names_a_member_of_a_tar_is_told_of_shards(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    (data / "images.tar").write_bytes(bytes(1024))
    (data / "rows.csv").write_text("path,caption,score,tokens\nimages.tar/1.jpg,a,1,[1]\n")
    path = write(data, table="file: rows.csv, uri: path", batch="size: 1")
    with pytest.raises(spdld.PipelineError, match=r"source.webdataset reads the samples of tar"):
        next(iter(load(path)))


def test_what_was_applied_of_a_table_survives_a_restart_and_an_edit(
    load: Callable[..., Any], data: pathlib.Path, daemon: Any
) -> None:
    with load(write(data), job="run") as loader:
        before = [batch["caption"] for batch in loader]
    text = (data / "table.csv").read_text(encoding="utf-8").replace("picture ", "photo ")
    (data / "table.csv").write_text(text, encoding="utf-8")
    daemon.kill()
    daemon.start()
    with load("pairs", job="again") as loader:
        assert [batch["caption"] for batch in loader] == before
    with load(write(data), replace=True) as loader:
        assert loader.pipeline_version == 2
        assert all("photo" in text for batch in loader for text in batch["caption"])


def test_tables_that_nobody_reads_leave_their_memory_to_others(
    make_daemon: Callable[..., Any], data: pathlib.Path
) -> None:
    names = ("a", "b", "c")
    for name in names:
        rows = [f"pictures/{i % ROWS}.png,{name * 20_000},{i},[]" for i in range(60)]
        text = "path,caption,score,tokens\n" + "\n".join(rows).replace(",[]", ',"[1]"') + "\n"
        (data / f"{name}.csv").write_text(text, encoding="utf-8")
    # The daemon's own user is bound by four times that: a table takes 1.2 MB.
    daemon = make_daemon(settings={"limits": {"listing_memory": "512KiB"}})
    for name in names:
        table = f"file: {name}.csv, uri: path"
        daemon.ctl(
            "apply", "-f", write(data, table=table, batch="size: 4, max_bytes: 1MiB", name=name)
        )

    def read(name: str) -> str:
        return str(daemon.ctl("consume", name, "--digest").stdout)

    before = {name: read(name) for name in names}
    assert len(set(before.values())) == 3
    assert {name: read(name) for name in names} == before
    (user,) = daemon.ctl_json("get", "users")
    assert user["listing_bytes"]["used"] <= 2 << 20
    with spdld.Loader("a", address=daemon.address) as first:
        next(iter(first))
        with (
            pytest.raises(spdld.PipelineError, match=r"times limits\.listing_memory, 2\.0 MiB"),
            spdld.Loader("b", address=daemon.address) as second,
        ):
            next(iter(second))
    daemon.kill()
    for name in names:  # what is there now does not count
        (data / f"{name}.csv").write_text("path,caption,score,tokens\n", encoding="utf-8")
    daemon.start()
    assert {name: read(name) for name in names} == before


def test_images_of_their_own_size_come_ragged(load: Callable[..., Any], data: pathlib.Path) -> None:
    for i in range(ROWS):
        Image.new("RGB", (10 + i, 20 - i), (i * 10,) * 3).save(data / "pictures" / f"{i}.png")
    batch_spec = "size: 4, layout: NHWC, collate: {image: {kind: ragged, max_bytes: 4KiB}}"
    path = write(data, batch=batch_spec, stages="[fetch, decode_image]")
    with load(path) as loader:
        for batch in loader:
            for i, image in zip(batch.indices, batch["image"], strict=True):
                assert image.shape == (20 - i, 10 + i, 3) and (image == i * 10).all()


def test_a_row_beyond_its_bound_is_an_error_that_says_what_to_raise(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    batch_spec = "size: 4, collate: {image: {kind: ragged, max_bytes: 100}}"
    path = write(data, batch=batch_spec, stages="[fetch, decode_image]")
    path.write_text(path.read_text() + "on_error: {decode: fail}\n")
    with pytest.raises(
        spdld.PipelineError, match=r"takes 576 bytes.*batch.collate.image.max_bytes"
    ):
        next(iter(load(path)))


def test_a_mask_shares_the_draws_of_its_image(load: Callable[..., Any], data: pathlib.Path) -> None:
    gradient = np.arange(32 * 24 * 3, dtype=np.uint8).reshape(24, 32, 3)
    for i in range(ROWS):
        Image.fromarray(gradient + i).save(data / "pictures" / f"{i}.png")
    (data / "pairs.csv").write_text(
        "a,b\n" + "".join(f"pictures/{i}.png,pictures/{i}.png\n" for i in range(ROWS))
    )
    path = data / "twice.yaml"
    path.write_text(
        "pipeline: twice\nsource: {table: {file: pairs.csv, uri: {image: a, other: b}}}\n"
        "stages: [fetch, decode_image, {decode_image: {field: other}},\n"
        "  {random_resized_crop: {size: 8}}, random_horizontal_flip]\nbatch: {size: 4}\n"
    )
    with load(path) as loader:
        for batch in loader:
            assert (batch["image"] == batch["other"]).all()


def test_images_that_share_draws_must_be_of_one_size(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    Image.new("RGB", (5, 5)).save(data / "pictures/small.png")
    (data / "pairs.csv").write_text("a,b\npictures/0.png,pictures/small.png\n")
    path = data / "twice.yaml"
    path.write_text(
        "pipeline: twice\nsource: {table: {file: pairs.csv, uri: {image: a, other: b}}}\n"
        "stages: [fetch, decode_image, {decode_image: {field: other}},\n"
        "  {random_resized_crop: {size: 8}}]\nbatch: {size: 1}\non_error: {decode: fail}\n"
    )
    with pytest.raises(spdld.PipelineError, match=r"'other' has 5x5 pixels, .* 16x12"):
        next(iter(load(path)))


def test_json_comes_as_its_text(load: Callable[..., Any], data: pathlib.Path) -> None:
    def turns(i: int) -> list[dict[str, str]]:
        return [{"from": "human", "value": f"<image>\n'{'ä' * i}'?"}, {"from": "gpt", "value": "}"}]

    with (data / "chats.jsonl").open("w", encoding="utf-8") as file:
        for i in range(ROWS):
            row = {"path": f"pictures/{i}.png", "conversations": turns(i), "id": i}
            file.write(json.dumps(row, ensure_ascii=i % 2 == 0) + "\n")
    path = data / "chats.yaml"
    path.write_text(
        "pipeline: chats\n"
        "source: {table: {file: chats.jsonl, uri: path,\n"
        "                 values: {turns: {column: conversations, type: json}}}}\n"
        f"stages: {DECODE}\nbatch: {{size: 4}}\n"
    )
    with load(path) as loader:
        rows = [
            (i, text)
            for batch in loader
            for i, text in zip(batch.indices, batch["turns"], strict=True)
        ]
    assert len(rows) == ROWS
    for i, text in rows:
        assert type(text) is str and json.loads(text) == turns(i)

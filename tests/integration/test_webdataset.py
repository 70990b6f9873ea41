# SPDX-License-Identifier: Apache-2.0
"""Tar shards: samples of several parts, their index, and what becomes of shards that change."""

from __future__ import annotations

import io
import json
import os
import pathlib
import tarfile
import time
from collections.abc import Callable
from typing import Any

import pytest
import spdld
from PIL import Image

SHARDS = 3
PER_SHARD = 8
ROWS = SHARDS * PER_SHARD
FIELDS = '{image: "jpg;png", label: cls, caption: txt, meta: json}'
DECODE = "[fetch, decode_image, {resize: {size: [8, 8]}}]"


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def picture(grey: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 12), (grey,) * 3).save(out, "png")
    return out.getvalue()


def write_shard(path: pathlib.Path, first: int, rows: int = PER_SHARD, word: str = "row") -> None:
    """Rows `first` to `first + rows`, with an age that tells later changes."""
    with tarfile.open(path, "w") as tar:
        for i in range(first, first + rows):
            key = f"some/{i:04}"
            add(tar, f"{key}.cls", str(i % 3).encode())
            add(tar, f"{key}.json", json.dumps({"width": 16 + i, "id": f"x{i}"}).encode())
            add(tar, f"{key}.PNG", picture(i * 5))
            add(tar, f"{key}.txt", f"{word} {i} ä".encode())
    age = time.time() - 1000
    os.utime(path, (age, age + first / 1000))


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    for shard in range(SHARDS):
        write_shard(tmp_path / f"train-{shard:03}.tar", shard * PER_SHARD)
    return tmp_path


def write(
    data: pathlib.Path,
    *,
    shards: str = '"train-{000..002}.tar"',
    fields: str = FIELDS,
    more: str = "",
    select: str = "",
    shuffle: str = "none",
    stages: str = DECODE,
    batch: str = "size: 4",
    name: str = "pairs",
) -> pathlib.Path:
    path = data / f"{name}.yaml"
    path.write_text(
        f"pipeline: {name}\nsource:\n"
        f"  webdataset: {{shards: {shards}, fields: {fields}{more}}}\n"
        + (f"  select: {select}\n" if select else "")
        + (f"shuffle: {shuffle}\n" if shuffle else "")
        + f"stages: {stages}\nbatch: {{{batch}}}\n"
    )
    return path


@pytest.fixture
def load(daemon: Any) -> Callable[..., spdld.Loader]:
    def make(pipeline: Any, **options: Any) -> spdld.Loader:
        return spdld.Loader(pipeline, address=daemon.address, **options)

    return make


def test_samples_come_with_all_their_parts(load: Callable[..., Any], data: pathlib.Path) -> None:
    with load(write(data)) as loader:
        assert loader.num_items == ROWS
        rows = []
        for batch in loader:
            for row, i in enumerate(batch.indices):
                assert (batch["image"][row] == i * 5).all()
                assert batch["label"][row] == i % 3
                assert batch["caption"][row] == f"row {i} ä"
                assert json.loads(batch["meta"][row]) == {"width": 16 + i, "id": f"x{i}"}
                assert batch.uris[row] == f"train-{i // PER_SHARD:03}.tar/some/{i:04}"
                rows.append(int(i))
        assert rows == list(range(ROWS))


def test_samples_are_shuffled_by_blocks_unless_the_pipeline_says_otherwise(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    with load(write(data, shuffle="")) as loader:
        rows = [int(i) for batch in loader for i in batch.indices]
    assert sorted(rows) == list(range(ROWS)) and rows != sorted(rows)


def test_what_the_index_knows_can_be_selected(load: Callable[..., Any], data: pathlib.Path) -> None:
    path = write(
        data,
        more=', index: {width: "json#/width", id: "json#/id"}',
        select="{where: \"width >= 20 and label in [0, 2] and id != 'x6'\"}",
    )
    expected = [i for i in range(ROWS) if 16 + i >= 20 and i % 3 != 1 and i != 6]
    with load(path) as loader:
        assert loader.num_items == len(expected)
        for batch in loader:
            assert batch["width"].tolist() == [16 + expected[i] for i in batch.indices]
            assert batch["id"] == [f"x{expected[i]}" for i in batch.indices]
            assert [m["width"] for m in map(json.loads, batch["meta"])] == batch["width"].tolist()


def test_classes_may_be_names(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i, name in enumerate(["dog", "cat", "dog", "cow"]):
            add(tar, f"{i}.cls", name.encode())
            add(tar, f"{i}.png", picture(i))
    path = write(
        tmp_path,
        shards="a.tar",
        fields="{image: png, label: cls}",
        more=", classes: [cow, cat, dog]",
    )
    with load(path) as loader:
        assert loader.class_to_idx == {"cow": 0, "cat": 1, "dog": 2}
        assert [batch["label"].tolist() for batch in loader] == [[2, 1, 2, 0]]
    chosen = write(
        tmp_path,
        shards="a.tar",
        fields="{image: png, target: cls}",
        more=", classes: [cow, cat, dog]",
        select="{where: \"target == 'dog'\"}",
        batch="size: 2",
        name="chosen",
    )
    with load(chosen) as loader:
        assert [batch["target"].tolist() for batch in loader] == [[2, 2]]


@pytest.mark.parametrize(
    ("rule", "rows"), [("missing: skip", [0, 2]), ("optional: caption", [0, 1, 2])]
)
def test_a_sample_that_lacks_a_part_is_left_out_or_has_none(
    load: Callable[..., Any], tmp_path: pathlib.Path, rule: str, rows: list[int]
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(3):
            add(tar, f"{i}.png", picture(i))
            if i != 1:
                add(tar, f"{i}.txt", f"caption {i}".encode())
    path = write(
        tmp_path,
        shards="a.tar",
        fields="{image: png, caption: txt}",
        more=f", {rule}",
        batch="size: 3, last: keep",
    )
    with load(path) as loader:
        (batch,) = list(loader)
        assert batch["caption"] == ["" if i == 1 else f"caption {i}" for i in rows]


@pytest.mark.parametrize(
    ("shards", "fields", "told"),
    [
        ('"train-{000..004}.tar"', FIELDS, r"2 of 5 shards are not there.*train-003.tar"),
        ("none-*.tar", FIELDS, "none-\\*.tar"),
        ('"train-{000..002}.tar"', "{image: jpg}", "lacks.*jpg|no.*jpg"),
        ('"train-{000..002}.tar"', "{image: pkl}", "pkl.*pickle|pickle"),
        ('"train-{000..002}.tar"', "{label: cls}", "name at least one part"),
        ('"train-{000..002}.tar"', "{image: png, label: png}", "png"),
        ("s3://bucket/x.tar", FIELDS, "is an address"),
        ('"pipe:cat x.tar"', FIELDS, "is a command, and none is run"),
        ("packed.tar.gz", FIELDS, "gzip|gunzip"),
    ],
)
def test_shards_that_cannot_be_read_are_refused_by_name(
    load: Callable[..., Any], data: pathlib.Path, shards: str, fields: str, told: str
) -> None:
    with tarfile.open(data / "packed.tar.gz", "w:gz") as tar:
        add(tar, "0.png", picture(0))
    if fields == "{image: png, label: png}":
        # A part may serve two fields.
        assert len(load(write(data, shards=shards, fields=fields))) == ROWS // 4
        return
    with pytest.raises(spdld.PipelineError, match=told):
        len(load(write(data, shards=shards, fields=fields)))


def test_a_key_that_comes_again_later_is_an_error_with_both_places(
    load: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ["0.png", "1.png", "0.png"]:
            add(tar, name, picture(0))
    with pytest.raises(spdld.PipelineError, match=r"a.tar.*'0'.*byte 0.*byte 2048|2048.*'0'.* 0"):
        len(load(write(tmp_path, shards="a.tar", fields="{image: png}")))


def test_a_shard_that_changed_under_its_index_is_its_items_error(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    path = write(data)
    path.write_text(path.read_text() + "on_error: {decode: fail}\n")
    with load(path) as loader:
        first = iter(loader)
        assert next(first)["caption"][0] == "row 0 ä"
    write_shard(data / "train-001.tar", PER_SHARD, word="another")
    os.utime(data / "train-001.tar")
    with pytest.raises(spdld.PipelineError, match=r"train-001.tar.*then, .* now.*spdlctl index"):
        list(load("pairs", job="later"))
    with load(path, replace=True, job="new") as loader:
        captions = [text for batch in loader for text in batch["caption"]]
    assert captions[PER_SHARD] == f"another {PER_SHARD} ä"


def test_what_was_applied_of_shards_survives_a_restart(
    load: Callable[..., Any], data: pathlib.Path, daemon: Any
) -> None:
    with load(write(data), job="run") as loader:
        before = [(batch["caption"], batch["image"].tobytes()) for batch in loader]
    daemon.kill()
    daemon.start()
    with load("pairs", job="again") as loader:
        assert [(batch["caption"], batch["image"].tobytes()) for batch in loader] == before


def test_shards_that_come_later_are_told_and_not_read(
    load: Callable[..., Any], data: pathlib.Path, daemon: Any
) -> None:
    path = write(data, shards="train-*.tar")
    with load(path) as loader:
        assert loader.num_items == ROWS
        list(loader)
    write_shard(data / "train-003.tar", ROWS)
    daemon.kill()
    daemon.start()
    with load("pairs", job="again") as loader:
        assert loader.num_items == ROWS
        list(loader)
    with load(path, replace=True) as loader:
        assert loader.num_items == ROWS + PER_SHARD


def test_an_index_that_is_lost_or_damaged_is_made_anew(
    load: Callable[..., Any], data: pathlib.Path, daemon: Any
) -> None:
    with load(write(data)) as loader:
        before = [batch["caption"] for batch in loader]
    daemon.kill()
    (index,) = pathlib.Path(daemon.state_dir).glob("**/*.tarindex")
    index.write_bytes(index.read_bytes()[:-9])
    daemon.start()
    with load("pairs", job="again") as loader:
        assert [batch["caption"] for batch in loader] == before


def test_an_index_can_be_made_before_anybody_reads(data: pathlib.Path, daemon: Any) -> None:
    said = daemon.ctl("index", "-f", str(write(data))).stdout
    assert said == f"the source of pipeline 'pairs' is indexed: {ROWS} items\n"
    (index,) = daemon.state_dir.glob("**/*.tarindex")
    assert daemon.ctl_json("index", "-f", data / "pairs.yaml") == {
        "pipeline": "pairs",
        "items": ROWS,
    }
    assert list(daemon.state_dir.glob("**/*.tarindex")) == [index]
    assert daemon.ctl_json("get", "pipelines") == []


def test_text_that_is_none_is_its_items_error(
    load: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(2):
            add(tar, f"{i}.png", picture(i))
            add(tar, f"{i}.txt", b"good" if i == 0 else b"bad \xff")
    path = write(tmp_path, shards="a.tar", fields="{image: png, caption: txt}", batch="size: 1")
    path.write_text(path.read_text() + "on_error: {decode: fail}\n")
    with pytest.raises(spdld.PipelineError, match=r"a.tar/1.*'caption' is no UTF-8 at byte 4"):
        list(load(path))


def test_ranks_of_one_job_read_each_sample_once(
    load: Callable[..., Any], data: pathlib.Path
) -> None:
    path = write(data, shuffle="{block: 4, interleave: 2}")
    rows: list[int] = []
    loaders = [load(path, job="two", rank=rank, world_size=2) for rank in range(2)]
    iters = [iter(loader) for loader in loaders]
    for batches in zip(*iters, strict=True):
        for batch in batches:
            rows += batch.indices.tolist()
    for loader in loaders:
        loader.close()
    assert sorted(rows) == list(range(ROWS))


def reads_of(pid: int) -> dict[str, int]:
    """Bytes that a process has read (rchar), and in how many calls (syscr)."""
    lines = pathlib.Path(f"/proc/{pid}/io").read_text().splitlines()
    return {name: int(count) for name, count in (line.split(": ") for line in lines)}


def test_a_sample_is_read_once_from_its_first_part_to_its_last(
    daemon: Any, tmp_path: pathlib.Path
) -> None:
    samples, size = 800, 4000
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(samples):
            add(tar, f"{i:04}.bin", bytes([i % 256]) * size)
            add(tar, f"{i:04}.json", b"{}")  # not wanted, but in between
            add(tar, f"{i:04}.txt", f"text {i}".encode())
            add(tar, f"{i:04}.seg", bytes([i % 7]) * size)
            add(tar, f"{i:04}.zip", b"z" * size)  # behind all that is wanted
    with tarfile.open(tmp_path / "a.tar") as tar:
        at = {member.name: member.offset_data for member in tar}
    spans = sum(at[f"{i:04}.seg"] + size - at[f"{i:04}.bin"] for i in range(samples))
    fields = "{image: bin, caption: txt, mask: seg}"
    batch = "size: 4, max_bytes: 1MiB"
    pipeline = write(tmp_path, shards="a.tar", fields=fields, stages="[fetch]", batch=batch)
    daemon.ctl("apply", "-f", pipeline)
    before = reads_of(daemon.pid)
    daemon.ctl("consume", "pairs", "--digest", "--prefetch", "2")
    after = reads_of(daemon.pid)
    # Some batches of the next epoch may have been begun.
    assert spans <= after["rchar"] - before["rchar"] <= 1.05 * spans
    # The threads' wake-ups are reads, too; three parts by themselves would be three a sample.
    assert after["syscr"] - before["syscr"] <= 2.5 * samples

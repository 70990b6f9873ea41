# SPDX-License-Identifier: Apache-2.0
"""Files below several roots, files that are left out, and files that belong to each item."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import spdld
from PIL import Image

RESIZE = "{resize: {size: [6, 8]}}"
DECODE = f"decode_image, {RESIZE}"
DECODE_BOTH = f"decode_image, {{decode_image: {{field: mask}}}}, {RESIZE}"


def picture(path: pathlib.Path, grey: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (grey,) * 3).save(path)


@pytest.fixture
def load(daemon: Any) -> Callable[..., spdld.Loader]:
    def make(pipeline: Any, **options: Any) -> spdld.Loader:
        return spdld.Loader(pipeline, address=daemon.address, **options)

    return make


def write(data: pathlib.Path, files: str, more: str = "", stages: str = DECODE) -> Any:
    path = data / "p.yaml"
    path.write_text(
        f"pipeline: p\nsource: {{files: {{{files}}}}}\n"
        f"stages: [fetch, {stages}]\nbatch: {{size: 1}}\n{more}"
    )
    return path


def greys(loader: spdld.Loader, field: str = "image") -> list[int]:
    with loader:
        return [int(batch[field][0, 0, 0, 0]) for batch in loader]


def test_the_items_of_several_roots_come_one_root_behind_the_other(
    load: Callable[..., Any], tmp_path: pathlib.Path, daemon: Any
) -> None:
    picture(tmp_path / "b/cat/1.png", 10)
    picture(tmp_path / "b/eel/2.png", 20)
    picture(tmp_path / "a/cat/3.png", 30)
    picture(tmp_path / "a/ant/4.png", 40)
    with load(write(tmp_path, "root: [b, a], label: parent_dir")) as loader:
        assert loader.classes == ["ant", "cat", "eel"]
        rows = [(int(b["image"][0, 0, 0, 0]), int(b["label"][0]), b.uris[0]) for b in loader]
    assert [row[:2] for row in rows] == [(10, 1), (20, 2), (40, 0), (30, 1)]
    assert [row[2] for row in rows] == ["b/cat/1.png", "b/eel/2.png", "a/ant/4.png", "a/cat/3.png"]
    # What was applied counts after a restart, whatever has come since.
    picture(tmp_path / "b/bat/0.png", 50)
    daemon.kill()
    daemon.start()
    assert greys(load("p", job="again")) == [10, 20, 40, 30]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ("root: []", "root"),
        ("root: [b, b]", "is there twice"),
        ("root: [., b]", "/b lies in .*exclude: .b/"),
        ("root: [b, none]", "there is no directory .*none"),
        ("root: b, companions: {mask: '../${stem}.png'}", r"\.\."),
        ("root: b, companions: {mask: 'masks/${what}.png'}", "what"),
        ("root: b, companions: {mask: 'masks/${stem}.png'}", "there is no file .*masks/1.png"),
        ("root: b, companions: {image: '${name}'}", "already"),
        ("root: b, exclude: '[a'", r"\[a"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(
    load: Callable[..., Any], tmp_path: pathlib.Path, files: str, told: str
) -> None:
    picture(tmp_path / "b/1.png", 10)
    with pytest.raises(spdld.PipelineError, match=told):
        len(load(write(tmp_path, files)))


def test_files_that_are_excluded_are_no_items(
    load: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    for i, name in enumerate(["a/1.png", "a/bad/2.png", "b/3.png", "b/4_old.png"]):
        picture(tmp_path / "d" / name, i)
    path = write(tmp_path, 'root: d, exclude: ["**/bad/*", "**/*_old.png"]')
    assert greys(load(path)) == [0, 2]


def test_companions_come_with_their_item(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    for i in range(3):
        picture(tmp_path / f"d/images/x/{i}.png", i)
        picture(tmp_path / f"d/masks/x/{i}.mask.png", 100 + i)
    path = write(
        tmp_path,
        'root: d, pattern: "images/**", companions: {mask: "masks/${subdir}/${stem}.mask.png"}',
        stages=DECODE_BOTH,
    )
    with load(path) as loader:
        rows = [(int(b["image"][0, 0, 0, 0]), int(b["mask"][0, 0, 0, 0])) for b in loader]
    assert rows == [(0, 100), (1, 101), (2, 102)]


def test_companions_of_text_come_as_str(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    for i in range(3):
        picture(tmp_path / f"d/{i}_left.png", i)
        (tmp_path / f"d/{i}.txt").write_text(f"caption {i} ä")
        (tmp_path / f"d/{i}.dat").write_text(f"bytes {i}")
    path = write(
        tmp_path,
        "root: d, pattern: '*.png', companions: {caption: '${stem%_left}.txt', "
        "more: '${stem%_left}.dat'}",
    )
    text = path.read_text()
    bounds = "{size: 1, collate: {caption: {max_bytes: 1KiB}, more: {max_bytes: 1KiB}}}"
    path.write_text(text.replace("{size: 1}", bounds))
    with load(path) as loader:
        rows = [(batch["caption"][0], bytes(batch["more"][0])) for batch in loader]
    assert rows == [(f"caption {i} ä", b"bytes %d" % i) for i in range(3)]


@pytest.mark.parametrize("policy", ["replace", "fail"])
def test_a_companion_that_is_missing_is_its_items_error(
    load: Callable[..., Any], tmp_path: pathlib.Path, policy: str
) -> None:
    for i in range(3):
        picture(tmp_path / f"d/images/{i}.png", i)
        picture(tmp_path / f"d/masks/{i}.png", 100 + i)
    (tmp_path / "d/masks/1.png").unlink()
    path = write(
        tmp_path,
        'root: d, pattern: "images/**", companions: {mask: "masks/${name}"}',
        f"on_error: {{decode: {policy}}}\n",
        stages=DECODE_BOTH,
    )
    if policy == "fail":
        with pytest.raises(
            spdld.PipelineError, match=r"masks/1.png is not there, though the dataset"
        ):
            list(load(path))
        return
    with load(path) as loader:
        valid = [bool(batch.valid[0]) for batch in loader]
    assert valid == [True, False, True]

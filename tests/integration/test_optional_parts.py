# SPDX-License-Identifier: Apache-2.0
"""Parts and values that a row need not have: such a row stays itself, with zeros or nothing in it."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import re
import tarfile
import wave
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld
from PIL import Image

ROWS = 12
Array = np.ndarray[Any, Any]


def has_part(row: int) -> bool:
    return row % 3 != 0


def pixels(row: int, height: int = 6, width: int = 8) -> Array:
    return np.random.default_rng(row).integers(0, 256, (height, width, 3), np.uint8)


def png(image: Array) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


def samples(row: int) -> Array:
    return np.random.default_rng(row).integers(-9000, 9000, 40 + row).astype("<i2")


def wav(row: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples(row).tobytes())
    return out.getvalue()


def npy(array: Array) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def own_size(row: int) -> Array:
    return pixels(row, 4 + row % 4, 5 + row % 3)


def heard(row: int) -> Array:
    return samples(row).astype(np.float32)[None] / 32768


def planes(image: Array) -> Array:
    return image.transpose(2, 0, 1)


def mask(row: int) -> Array:
    return pixels(row)[..., 0] % 20


@dataclasses.dataclass(frozen=True)
class Part:
    """How a part is stored, decoded and laid into a batch, and what its rows are then."""

    ending: str
    stored: Callable[[int], bytes]
    row: Callable[[int], Array]
    nothing: tuple[int, ...]  # the shape of a row without it
    stages: str = ""
    collate: str = ""


RAGGED = "{kind: ragged, max_bytes: 4KiB}"
PADDED = "{pad: 7, max_bytes: 4KiB}"
SIX_BY_EIGHT = "{decode_image: {field: x}}, {resize: {size: [6, 8]}}"
FLOATS = "{decode_image: {field: x}}, {resize: {size: [6, 8]}}, {to_dtype: {dtype: float32, scale: true}}"
MASKS = "{decode_image: {field: x, mode: index}}, {resize: {size: [6, 8]}}"
ARRAYS = "{decode_npy: {field: x, dtype: int64, shape: %s}}"
PARTS = {
    "stacked images": Part(
        "png", lambda i: png(pixels(i)), lambda i: planes(pixels(i)), (3, 6, 8), SIX_BY_EIGHT
    ),
    "images of floats": Part(
        "png",
        lambda i: png(pixels(i)),
        lambda i: planes(pixels(i)).astype(np.float32) / 255,
        (3, 6, 8),
        FLOATS,
    ),
    "ragged images": Part(
        "png",
        lambda i: png(own_size(i)),
        lambda i: planes(own_size(i)),
        (3, 0, 0),
        "{decode_image: {field: x}}",
        RAGGED,
    ),
    "padded images": Part(
        "png",
        lambda i: png(own_size(i)),
        lambda i: planes(own_size(i)),
        (3, 0, 0),
        "{decode_image: {field: x}}",
        PADDED,
    ),
    "masks": Part("png", lambda i: png(mask(i)), lambda i: mask(i)[None], (1, 6, 8), MASKS),
    "ragged sound": Part(
        "wav", wav, heard, (1, 0), "{decode_audio: {field: x, channels: 1}}", RAGGED
    ),
    "padded sound": Part(
        "wav", wav, heard, (1, 0), "{decode_audio: {field: x, channels: 1}}", PADDED
    ),
    "stacked arrays": Part(
        "npy", lambda i: npy(np.full((2, 3), i)), lambda i: np.full((2, 3), i), (2, 3),
        ARRAYS % "[2, 3]",
    ),
    "ragged arrays": Part(
        "npy", lambda i: npy(np.full((2, i), i)), lambda i: np.full((2, i), i), (2, 0),
        ARRAYS % "[2, -1]", RAGGED,
    ),
    "padded arrays": Part(
        "npy", lambda i: npy(np.full((2, i), i)), lambda i: np.full((2, i), i), (2, 0),
        ARRAYS % "[2, -1]", PADDED,
    ),
    "ragged bytes": Part(
        "bin", lambda i: bytes([i] * i), lambda i: np.full(i, i, np.uint8), (0,), "", RAGGED
    ),
    "padded bytes": Part(
        "bin", lambda i: bytes([i] * i), lambda i: np.full(i, i, np.uint8), (0,), "", PADDED
    ),
}  # fmt: skip


def write_tar(root: pathlib.Path, part: Part) -> str:
    with tarfile.open(root / "a.tar", "w") as tar:
        for row in range(ROWS):
            members = [("txt", b"text")]
            if has_part(row):
                members.append((part.ending, part.stored(row)))
            for ending, content in members:
                info = tarfile.TarInfo(f"{row:03}.{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    fields = f"{{x: {part.ending}, text: txt}}"
    return f"webdataset: {{shards: a.tar, fields: {fields}, optional: x}}"


def write_files(root: pathlib.Path, part: Part) -> None:
    (root / "parts").mkdir()
    for row in filter(has_part, range(ROWS)):
        (root / "parts" / f"{row:03}.{part.ending}").write_bytes(part.stored(row))


def name_of(row: int, part: Part) -> str:
    return f"parts/{row:03}.{part.ending}"


def write_json_table(root: pathlib.Path, part: Part) -> str:
    write_files(root, part)
    with (root / "t.jsonl").open("w") as table:
        for row in range(ROWS):
            absent = {"x": None} if row % 2 else {}
            there = {"x": name_of(row, part)} if has_part(row) else absent
            table.write(json.dumps({"text": "text", **there}) + "\n")
    return "table: {file: t.jsonl, uri: {x: x}, values: {text: text}, optional: [x]}"


def write_csv_table(root: pathlib.Path, part: Part) -> str:
    write_files(root, part)
    rows = [f"{name_of(row, part) if has_part(row) else ''},text\n" for row in range(ROWS)]
    (root / "t.csv").write_text("x,text\n" + "".join(rows))
    return "table: {file: t.csv, uri: {x: x}, values: {text: text}, optional: [x]}"


def write_companions(root: pathlib.Path, part: Part) -> str:
    write_files(root, part)
    for row in range(ROWS):
        (root / f"{row:03}.txt").write_bytes(b"text")
    companions = f'{{x: "parts/${{stem}}.{part.ending}"}}'
    files = f'root: ".", pattern: "*.txt", field: text, companions: {companions}, optional: [x]'
    return f"files: {{{files}}}"


def write_coco(root: pathlib.Path, part: Part) -> str:
    write_files(root, part)
    images = []
    for row in range(ROWS):
        absent = {"file_name": None} if row % 2 else {}
        there = {"file_name": name_of(row, part)} if has_part(row) else absent
        images.append({"id": row, "width": 8, "height": 6, **there})
    text = json.dumps({"images": images, "annotations": [], "categories": []})
    (root / "a.json").write_text(text)
    return 'coco: {annotations: a.json, root: ".", field: x, optional: [x]}'


SOURCES = {
    "tar": write_tar,
    "JSON Lines": write_json_table,
    "CSV": write_csv_table,
    "companions": write_companions,
    "COCO": write_coco,
}


@pytest.fixture
def load(daemon: Any, tmp_path: pathlib.Path) -> Callable[..., spdld.Loader]:
    def make(source: str, stages: str = "", collate: str = "", rest: str = "") -> spdld.Loader:
        path = tmp_path / "optional.yaml"
        path.write_text(
            f"pipeline: optional\nsource: {{{source}}}\nshuffle: none\n"
            f"stages: [fetch{', ' if stages else ''}{stages}]\n"
            f"batch: {{size: 6, last: keep, max_bytes: 1MiB, layout: NCHW, collate: {{{collate}}}}}\n"
            f"on_error: {{decode: fail}}\n{rest}"
        )
        return spdld.Loader(path, address=daemon.address, replace=True)

    return make


def expect_rows(batch: Any, part: Part) -> None:
    padded = "pad:" in part.collate
    for i, index in enumerate(batch.indices):
        row = np.asarray(batch["x"][i])
        want = part.row(index) if has_part(index) else np.zeros(part.nothing, row.dtype)
        if padded:
            extents = np.asarray(batch["x_length"][i]).reshape(-1)
            inside = tuple(slice(0, extent) for extent in want.shape)
            assert list(extents) == list(want.shape)[-len(extents) :]
            outside = np.ones(row.shape, bool)
            outside[inside] = False
            assert (row[outside] == 7).all()
            row = row[inside]
        assert row.shape == want.shape and row.dtype == want.dtype
        np.testing.assert_allclose(row, want, atol=1e-6)


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
@pytest.mark.parametrize("write", SOURCES.values(), ids=SOURCES.keys())
def test_rows_without_a_part_stay_themselves(
    load: Callable[..., spdld.Loader],
    tmp_path: pathlib.Path,
    write: Callable[[pathlib.Path, Part], str],
    part: Part,
) -> None:
    source = write(tmp_path, part)
    with load(source, part.stages, f"x: {part.collate}" if part.collate else "") as loader:
        rows = 0
        for batch in loader:
            assert batch.valid.all()
            present = batch["x_present"]
            assert present.dtype == bool
            assert present.tolist() == [has_part(index) for index in batch.indices]
            expect_rows(batch, part)
            rows += batch.rows
        assert rows == ROWS


@pytest.mark.parametrize("write", SOURCES.values(), ids=SOURCES.keys())
def test_explain_shows_the_field_that_tells_which_rows_have_a_part(
    load: Callable[..., spdld.Loader],
    tmp_path: pathlib.Path,
    daemon: Any,
    write: Callable[[pathlib.Path, Part], str],
) -> None:
    part = PARTS["stacked images"]
    load(write(tmp_path, part), part.stages).close()
    shown = daemon.ctl("explain", "-f", tmp_path / "optional.yaml").stdout
    assert re.search(r"x_present\W+bool", shown), shown


@pytest.mark.parametrize("write", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("kept", [False, True], ids=["dropped", "kept"])
def test_values_of_an_absent_document_are_zeros(
    load: Callable[..., spdld.Loader],
    tmp_path: pathlib.Path,
    write: Callable[[pathlib.Path, Part], str],
    kept: bool,
) -> None:
    def document(row: int) -> bytes:
        return json.dumps({"n": row, "t": f"t{row}", "l": [row] * row, "f": row / 2}).encode()

    part = Part("json", document, lambda _: np.zeros(0), (0,))
    values = (
        "n: {pointer: /n, type: int64}, t: /t, l: {pointer: /l, type: int64_list}, "
        "f: {pointer: /f, type: float64}"
    )
    stage = f"{{decode_json: {{field: x, keep: {str(kept).lower()}, values: {{{values}}}}}}}"
    with load(write(tmp_path, part), stage) as loader:
        for batch in loader:
            for i, row in enumerate(batch.indices.tolist()):
                there = has_part(row)
                assert batch["x_present"][i] == there
                assert batch["n"][i] == (row if there else 0)
                assert batch["f"][i] == (row / 2 if there else 0)
                assert batch["t"][i] == (f"t{row}" if there else "")
                assert list(batch["l"][i]) == ([row] * row if there else [])
                if kept:
                    assert batch["x"][i] == (document(row).decode() if there else "")


@pytest.mark.parametrize("form", ["encoded", "decoded"])
@pytest.mark.parametrize("write", SOURCES.values(), ids=SOURCES.keys())
def test_a_cache_changes_no_row_without_an_image(
    load: Callable[..., spdld.Loader],
    tmp_path: pathlib.Path,
    write: Callable[[pathlib.Path, Part], str],
    form: str,
) -> None:
    part = PARTS["stacked images"]
    source = write(tmp_path, part)
    with load(source, part.stages, rest=f"cache: {{form: {form}, size: 1MiB}}\n") as loader:
        for _ in range(3):
            for batch in loader:
                expect_rows(batch, part)


def write_values(root: pathlib.Path, as_json: bool) -> str:
    """A table of which the first row, and each third one, has nothing but its file."""
    lines = []
    for row in range(ROWS):
        (root / f"{row:03}.bin").write_bytes(b"x")
        values: dict[str, Any] = {"path": f"{row:03}.bin"}
        if has_part(row):
            values |= {"n": row, "f": row + 0.5, "t": f"t{row}", "l": [row, row], "b": True}
            values |= {"label": "dog" if row % 2 else "cat"}
        lines.append(values)
    if as_json:
        (root / "v.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return "v.jsonl"
    names = ["path", "n", "f", "t", "l", "b", "label"]
    rows = [
        "\t".join(json.dumps(line[name]).strip('"') if name in line else "" for name in names)
        for line in lines
    ]
    (root / "v.tsv").write_text("\n".join(["\t".join(names), *rows]) + "\n")
    return "v.tsv"


@pytest.mark.parametrize("as_json", [False, True], ids=["TSV", "JSON Lines"])
@pytest.mark.parametrize("typed", [False, True], ids=["by the rows", "declared"])
def test_values_that_a_row_lacks_are_zeros(
    load: Callable[..., spdld.Loader], tmp_path: pathlib.Path, as_json: bool, typed: bool
) -> None:
    file = write_values(tmp_path, as_json)
    types = {"n": "int64", "f": "float64", "t": "text", "l": "int64_list", "b": "bool"}
    values = ", ".join(
        f"{name}: {{column: {name}, type: {kind}}}" if typed else f"{name}: {name}"
        for name, kind in types.items()
    )
    source = (
        f"table: {{file: {file}, uri: {{bin: path}}, label: label, values: {{{values}}}, "
        "optional: [n, f, t, l, b, label]}"
    )
    for collate in ("", "l: {kind: stack, max_bytes: 16}"):
        with load(source, collate=collate) as loader:
            assert loader.class_to_idx == {"cat": 0, "dog": 1}
            for batch in loader:
                for i, row in enumerate(batch.indices):
                    there = has_part(row)
                    nothing = [0, 0] if collate else []
                    assert batch["n"][i] == (row if there else 0)
                    assert batch["f"][i] == (row + 0.5 if there else 0)
                    assert batch["t"][i] == (f"t{row}" if there else "")
                    assert list(batch["l"][i]) == ([row, row] if there else nothing)
                    assert batch["b"][i] == there
                    assert batch["label"][i] == (row % 2 if there else 0)
                    for name in (*types, "label"):
                        assert batch[f"{name}_present"][i] == there


def test_labels_and_indexed_values_of_shards_may_be_absent(
    load: Callable[..., spdld.Loader], tmp_path: pathlib.Path
) -> None:
    for shard in range(2):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as tar:
            for row in range(6):
                members = [("bin", b"x"), ("json", json.dumps({"w": row} if row else {}).encode())]
                # The second shard has no value at all.
                if shard == 1:
                    members[1] = ("json", b'{"w": null}')
                elif row % 2:
                    members.append(("cls", b"5"))
                for ending, content in members:
                    info = tarfile.TarInfo(f"{row}.{ending}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    source = (
        'webdataset: {shards: "{0..1}.tar", fields: {x: bin, label: cls}, '
        'index: {w: "json#/w"}, optional: [label, w]}'
    )
    with load(source) as loader:
        rows = [
            (batch["label"][i], batch["label_present"][i], batch["w"][i], batch["w_present"][i])
            for batch in loader
            for i in range(batch.rows)
        ]
    first = [(5 if row % 2 else 0, row % 2 == 1, row, row > 0) for row in range(6)]
    assert rows == first + [(0, False, 0, False)] * 6
    with load(source + ', select: {where: "label_present or w_present"}') as loader:
        assert [int(i) for batch in loader for i in batch["w"]] == [1, 2, 3, 4, 5]


def write_pairs(root: pathlib.Path) -> str:
    """Rows with an image, a mask of its size, both or neither, and a box in the image."""
    with (root / "pairs.jsonl").open("w") as table:
        for row in range(ROWS):
            line: dict[str, Any] = {"boxes": [1, 1, 4, 4]}
            if row % 2:
                (root / f"{row}.png").write_bytes(png(pixels(row)))
                line["image"] = f"{row}.png"
            if row % 4 > 1:
                (root / f"{row}.mask.png").write_bytes(png(mask(row)))
                line["mask"] = f"{row}.mask.png"
            table.write(json.dumps(line) + "\n")
    return (
        "table: {file: pairs.jsonl, uri: {image: image, mask: mask}, values: {boxes: boxes}, "
        "optional: [image, mask]}"
    )


def test_a_mask_without_its_image_and_an_image_without_its_mask_are_rows(
    load: Callable[..., spdld.Loader], tmp_path: pathlib.Path
) -> None:
    stages = (
        "decode_image, {decode_image: {field: mask, mode: index}}, bounding_boxes, "
        "{random_horizontal_flip: {p: 1}}, {resize: {size: [6, 8]}}"
    )
    with load(write_pairs(tmp_path), stages) as loader:
        for batch in loader:
            assert batch.valid.all()
            for i, row in enumerate(batch.indices):
                image = planes(pixels(row))[..., ::-1] if row % 2 else np.zeros((3, 6, 8), np.uint8)
                index = mask(row)[None, :, ::-1] if row % 4 > 1 else np.zeros((1, 6, 8), np.uint8)
                assert (batch["image"][i] == image).all()
                assert (batch["mask"][i] == index).all()
                # A box lies in the image.
                boxes = np.asarray(batch["boxes"][i]).tolist()
                assert boxes == ([[4, 1, 7, 4]] if row % 2 else [])


def test_rows_without_sound_give_no_windows(
    load: Callable[..., spdld.Loader], tmp_path: pathlib.Path, daemon: Any
) -> None:
    part = PARTS["ragged sound"]
    for write in (write_tar, write_json_table):
        root = tmp_path / write.__name__
        root.mkdir()
        source = write(root, part).replace("a.tar", str(root / "a.tar"))
        source = source.replace("t.jsonl", str(root / "t.jsonl"))
        source += ", windows: {sampling: whole, field: x}"
        with load(source, "{decode_audio: {field: x}}", f"x: {RAGGED}") as loader:
            rows = [np.asarray(row) for batch in loader for row in batch["x"]]
            assert all(present for batch in loader for present in batch["x_present"])
        wanted = [heard(row) for row in range(ROWS) if has_part(row)]
        assert len(rows) == len(wanted)
        for row, want in zip(rows, wanted, strict=True):
            np.testing.assert_allclose(row, want, atol=1e-6)
        applied = daemon.ctl("apply", "-f", tmp_path / "optional.yaml")
        told = applied.stdout + applied.stderr
        assert "4 without such a part, which is optional" in told


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("table: {file: t.csv, uri: {x: x}, optional: [y]}", "there is no field 'y'"),
        ("table: {file: t.csv, uri: {x: x, x_present: y}, optional: [x]}", "there is such a field"),
        ("files: {root: '.', optional: [image]}", "only companions can be optional"),
        (
            "files: {root: '.', companions: {m: 'm/${stem}'}, optional: [image]}",
            "each item has 'image'",
        ),
        ("coco: {annotations: a.json, root: '.', optional: boxes}", "each item has 'boxes'"),
        ("webdataset: {shards: a.tar, fields: {x: png}, missing: empty}", "error, skip"),
    ],
)
def test_what_cannot_be_optional_is_refused_by_its_place(
    load: Callable[..., spdld.Loader], source: str, told: str
) -> None:
    with pytest.raises(spdld.PipelineError) as refused:
        len(load(source))
    assert told in str(refused.value) and "optional.yaml:2:" in str(refused.value)


def test_a_companion_that_no_item_has_is_a_wrong_pattern(
    load: Callable[..., spdld.Loader], tmp_path: pathlib.Path
) -> None:
    for row in range(3):
        (tmp_path / f"{row}.txt").write_bytes(b"text")
    source = 'files: {root: ".", pattern: "*.txt", companions: {x: "x/${stem}.png"}, optional: [x]}'
    with pytest.raises(spdld.Error, match=r"none of the first 3 items has one, such as .*x/0\.png"):
        len(load(source))


def test_a_file_that_a_table_names_must_be_there(
    load: Callable[..., spdld.Loader], tmp_path: pathlib.Path
) -> None:
    source = write_csv_table(tmp_path, PARTS["ragged bytes"])
    (tmp_path / "parts" / "001.bin").unlink()
    with pytest.raises(spdld.Error, match=r"001\.bin is not there"), load(source) as loader:
        next(iter(loader))


@pytest.mark.parametrize("write", [write_json_table, write_csv_table, write_coco])
def test_a_root_below_which_no_named_file_is_is_refused(
    load: Callable[..., spdld.Loader], tmp_path: pathlib.Path, write: Callable[..., str]
) -> None:
    source = write(tmp_path, PARTS["ragged bytes"])
    (tmp_path / "parts").rename(tmp_path / "moved")
    told = (
        r"none of the 8 files of 'x' that were looked at is there; is source\.(table|coco)\.root "
        r"right\? The first: .*/parts/001\.bin is not there"
    )
    with pytest.raises(spdld.Error, match=told):
        len(load(source))
    # One that is there shows that the root is right.
    (tmp_path / "parts").mkdir()
    (tmp_path / "moved" / "011.bin").rename(tmp_path / "parts" / "011.bin")
    with pytest.raises(spdld.Error, match="is not there") as refused, load(source) as loader:
        next(iter(loader))
    assert "none of" not in str(refused.value)


def test_a_selection_is_asked_for_its_own_files(
    load: Callable[..., spdld.Loader], tmp_path: pathlib.Path
) -> None:
    with (tmp_path / "t.jsonl").open("w") as table:
        for row in range(3000):
            table.write(json.dumps({"x": f"{row}.bin", "n": row}) + "\n")
    (tmp_path / "2999.bin").write_bytes(b"x")
    source = "table: {file: t.jsonl, uri: {x: x}, values: {n: n}, optional: [x]}"
    with pytest.raises(spdld.Error, match="none of the 1000 files of 'x'"):
        len(load(source))
    with load(source + ', select: {where: "n == 2999"}') as loader:
        assert next(iter(loader)).uris == ["2999.bin"]


def test_a_column_without_any_value_needs_a_type(
    load: Callable[..., spdld.Loader], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "a.bin").write_bytes(b"x")
    (tmp_path / "n.jsonl").write_text('{"path": "a.bin", "n": null}\n')
    source = "table: {file: n.jsonl, uri: {x: path}, values: {n: %s}, optional: [n]}"
    with pytest.raises(spdld.Error, match="no row has a value in the column 'n'"):
        len(load(source % "n"))
    with load(source % "{column: n, type: float64}") as loader:
        batch = next(iter(loader))
        assert batch["n"].tolist() == [0] and batch["n_present"].tolist() == [False]

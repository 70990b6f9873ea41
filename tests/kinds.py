# SPDX-License-Identifier: Apache-2.0
"""The same images by another source, and beside each a field whose rows differ in size.

A test writes a pipeline that reads image files; of_kind() makes another of it that has the same items
in the same order from tar shards or a table, with a field `extra` that follows from the item's number;
one kind has a table's items in an order by length. Whatever holds for the first pipeline must hold for all of them.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import os
import pathlib
import tarfile
import wave
from typing import Any

import numpy as np

SOURCES = ("files", "webdataset", "table")
# "windows": the middle of a sound file beside the image, which is an item each.
COLLATES = ("dense", "ragged", "bytes", "pad", "windows")
SHARDS = 3
# Of padded rows; all come to the same size, or a row's digest would depend on its batch.
MULTIPLE, FILLED = 8, 7
MOST_BYTES = 4096  # of a row of `extra`
RATE, SAMPLES, SAMPLES_OF_FILE = 8000, 400, 800
EXTRA_SUFFIX = "extra"  # formats are told by content

Spec = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Kind:
    source: str
    collate: str

    def __str__(self) -> str:
        return f"{self.source}-{self.collate}"


PLAIN = Kind("files", "dense")  # what tests write
# What was made of which images: a daemon may be reading it by now, and is not to find it changed.
_made: dict[tuple[Kind, pathlib.Path], list[tuple[pathlib.Path, int, int]]] = {}
# A table whose rows are shuffled in runs of like length, wherever the test's are shuffled.
BY_LENGTH = Kind("table_by_length", "dense")
BUCKET = {"by": "length", "window": 64, "run": 8}
ALL = [*(Kind(*pair) for pair in itertools.product(SOURCES, COLLATES)), BY_LENGTH]


def named(name: str) -> Kind:
    return {str(kind): kind for kind in ALL}[name]


def expected_bytes(item: int) -> bytes:
    return f"item {item}. ".encode() * (1 + item % 9)


def expected_pixels(item: int) -> np.ndarray:
    """Height x width, neither of which is 1: so the channel is known from them."""
    return np.full((2 + item % 5, 2 + item % 7), item % 251, dtype=np.uint8)


def expected_samples(item: int) -> np.ndarray:
    begin = (SAMPLES_OF_FILE - SAMPLES) // 2
    return _samples(item)[begin : begin + SAMPLES] / np.float32(1 << 15)


def _samples(item: int) -> np.ndarray:
    return ((np.arange(SAMPLES_OF_FILE) * 37 + item * 101) % 2003 - 1000).astype(np.int16)


def length(item: int) -> int:
    return 1 + item * 37 % 101


def check(batch: Any) -> None:
    """Raises if a valid row of `extra` is not its item's; nothing, if there is no such field."""
    if "extra" not in batch:
        return
    rows, is_padded = batch["extra"], "extra_length" in batch
    for row, (item, valid) in enumerate(
        zip(batch.indices.tolist(), batch.valid.tolist(), strict=True)
    ):
        if valid and not _is_of(item, rows[row], batch["extra_length"][row] if is_padded else None):
            raise ValueError(
                f"epoch {batch.epoch} step {batch.step} row {row}: its extra is not item {item}'s"
            )


def _is_of(item: int, row: Any, length: Any) -> bool:
    if isinstance(row, memoryview):
        return row == expected_bytes(item)
    if np.asarray(row).dtype == np.float32:
        return np.array_equal(np.asarray(row), expected_samples(item)[np.newaxis])
    want, pixels = expected_pixels(item), np.asarray(row)
    pixels = pixels[0] if pixels.shape[0] == 1 else pixels[..., 0]  # NCHW or NHWC
    if length is None:
        return np.array_equal(pixels, want)
    high, wide = want.shape
    return (
        np.asarray(length).tolist() == [high, wide]
        and all(extent % MULTIPLE == 0 for extent in pixels.shape)
        and np.array_equal(pixels[:high, :wide], want)
        and bool((pixels[high:] == FILLED).all() and (pixels[:, wide:] == FILLED).all())
    )


def _extra(kind: Kind, item: int) -> bytes:
    if kind.collate == "bytes":
        return expected_bytes(item)
    out = io.BytesIO()
    if kind.collate == "windows":
        with wave.open(out, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(_samples(item).tobytes())
        return out.getvalue()
    from PIL import Image

    Image.fromarray(expected_pixels(item)).save(out, "png")
    return out.getvalue()


def of_kind(kind: Kind, spec: Spec) -> Spec:
    """The pipeline of this kind; `spec` reads files. Data that it needs is made beside the images."""
    if kind == PLAIN or "files" not in spec["source"]:
        return spec
    files = spec["source"]["files"]
    root = pathlib.Path(files["root"])
    images = _images(root, files["pattern"])
    if not images:
        return spec
    labels = files.get("label", "none") != "none"
    _make(kind, root, images)
    extra = kind.collate != "dense"
    made = {**spec, "source": {**spec["source"], **_source(kind, files, images, labels)}}
    if kind.source != "files":
        del made["source"]["files"]
    if kind == BY_LENGTH and spec.get("shuffle") == "global":
        made["shuffle"] = {"global": {"bucket": BUCKET}}
    if not extra:
        return made
    if kind.collate == "windows":
        cut = {"seconds": SAMPLES / RATE, "sampling": "uniform", "field": "extra"}
        made["source"]["windows"] = cut
        made["stages"] = [*spec["stages"], {"decode_audio": {"field": "extra"}}]
        return made
    batch = dict(spec["batch"])
    batch["collate"] = {**batch.get("collate", {}), "extra": _collate(kind)}
    made["batch"] = batch
    if kind.collate != "bytes":
        # Behind all other ops: those without `fields` work on what is decoded by then.
        made["stages"] = [*spec["stages"], {"decode_image": {"field": "extra", "mode": "gray"}}]
    return made


def _images(root: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    """In the order of the listing: relative paths, bytewise."""
    found = (path for path in root.glob(pattern) if path.is_file())
    return sorted(found, key=lambda path: os.fsencode(path.relative_to(root)))


def _collate(kind: Kind) -> Any:
    if kind.collate == "pad":
        return {"pad": FILLED, "multiple_of": MULTIPLE, "max_bytes": MOST_BYTES}
    return {"kind": kind.collate, "max_bytes": MOST_BYTES}


def _directory(kind: Kind, root: pathlib.Path) -> pathlib.Path:
    return root.with_name(f"{root.name}-{kind}")


def _source(kind: Kind, files: Spec, images: list[pathlib.Path], labels: bool) -> Spec:
    root = pathlib.Path(files["root"])
    directory = _directory(kind, root)
    extra = kind.collate != "dense"
    if kind.source == "files":
        own = "${stem}" if images[0].parent == root else "${dir}/${stem}"
        companions = {"companions": {"extra": f"{own}.{kind.collate}"}} if extra else {}
        return {"files": {**files, **companions}}
    if kind.source == "webdataset":
        parts = {"image": images[0].suffix[1:]}
        parts |= {"label": "cls"} if labels else {}
        parts |= {"extra": EXTRA_SUFFIX} if extra else {}
        shards = str(directory / f"{{000..{SHARDS - 1:03}}}.tar")
        return {"webdataset": {"shards": shards, "fields": parts}}
    uri = {"image": "path", **({"extra": "extra"} if extra else {})}
    label = {"label": "class"} if labels else {}
    values = {"values": {"length": "length"}} if kind == BY_LENGTH else {}
    return {
        "table": {"file": str(directory / "table.csv"), "root": "/", "uri": uri, **label, **values}
    }


def _make(kind: Kind, root: pathlib.Path, images: list[pathlib.Path]) -> None:
    """Writes what the source of this kind reads beside the images, or instead of them."""
    stats = [(path, path.stat().st_size, path.stat().st_mtime_ns) for path in images]
    if _made.get((kind, root)) == stats:
        return
    _made[kind, root] = stats
    directory = _directory(kind, root)
    directory.mkdir(exist_ok=True)
    if kind.source == "webdataset":
        _write_tars(kind, root, images)
    elif kind.source in ("table", BY_LENGTH.source):
        _write_table(kind, root, images)
    elif kind.collate != "dense":
        for item, path in enumerate(images):
            path.with_suffix(f".{kind.collate}").write_bytes(_extra(kind, item))


def _write_tars(kind: Kind, root: pathlib.Path, images: list[pathlib.Path]) -> None:
    classes = sorted({path.relative_to(root).parts[0] for path in images}, key=os.fsencode)
    per_shard = -(-len(images) // SHARDS)
    for shard in range(SHARDS):
        with tarfile.open(_directory(kind, root) / f"{shard:03}.tar", "w") as tar:
            for item in range(shard * per_shard, min((shard + 1) * per_shard, len(images))):
                name = images[item].relative_to(root)
                parts = {
                    name.suffix[1:]: images[item].read_bytes(),
                    "cls": str(classes.index(name.parts[0])).encode(),
                    EXTRA_SUFFIX: _extra(kind, item),
                }
                for suffix, content in parts.items():
                    info = tarfile.TarInfo(str(name.with_suffix(f".{suffix}")))
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))


def _write_table(kind: Kind, root: pathlib.Path, images: list[pathlib.Path]) -> None:
    directory = _directory(kind, root)
    with (directory / "table.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "class", "extra", "length"])
        for item, image in enumerate(images):
            extra = directory / f"{item}.{EXTRA_SUFFIX}"
            extra.write_bytes(_extra(kind, item))
            rows.writerow([image, image.relative_to(root).parts[0], extra, length(item)])

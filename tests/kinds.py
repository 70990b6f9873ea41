# SPDX-License-Identifier: Apache-2.0
"""The same images by another source, and beside each a field whose rows differ in size, or a clip.

A test writes a pipeline that reads image files; of_kind() makes another of it that has the same items
in the same order from tar shards or a table, with a field `extra` that follows from the item's number;
one kind has a table's items in an order by length. Whatever holds for the first pipeline must hold for all of them.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import itertools
import os
import pathlib
import subprocess
import tarfile
import tempfile
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
# Of clips: a video has 13 frames and a little more sound; a clip has each second one of five frames.
FRAMES_OF_FILE, FRAMES, STRIDE, HEIGHT, WIDTH = 13, 3, 2, 16, 32
FPS, SAMPLES_OF_FRAME = 25, RATE // 25
VIDEOS = 61  # so many differ; item i has video i % VIDEOS

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
# `extra` is a clip of a video, drawn anew in each epoch; and one with its sound and a text beside it.
CLIPS = Kind("files", "clips")
CLIPS_AND_MORE = Kind("webdataset", "clips-audio-text")
ALL = [
    *(Kind(*pair) for pair in itertools.product(SOURCES, COLLATES)),
    *(BY_LENGTH, CLIPS, CLIPS_AND_MORE),
]


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


def expected_frames(item: int, first: int) -> np.ndarray:
    """Of the clip that begins at this frame: frames x 1 x height x width."""
    return _frames(item % VIDEOS)[first : first + FRAMES * STRIDE : STRIDE, np.newaxis]


def expected_sound(item: int, first: int) -> np.ndarray:
    """From the clip's first frame to where the frame behind it would begin, as `stride` has it."""
    begin, count = first * SAMPLES_OF_FRAME, FRAMES * STRIDE * SAMPLES_OF_FRAME
    return _sound(item % VIDEOS)[np.newaxis, begin : begin + count] / np.float32(1 << 15)


def _frames(video: int) -> np.ndarray:
    t, y, x = np.ogrid[:FRAMES_OF_FILE, :HEIGHT, :WIDTH]
    return ((t * 7 + y * 3 + x * 5 + video * 11) % 251).astype(np.uint8)


def _sound(video: int) -> np.ndarray:
    count = (FRAMES_OF_FILE + STRIDE) * SAMPLES_OF_FRAME
    return ((np.arange(count) * 37 + video * 101) % 2003 - 1000).astype(np.int16)


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
        if not valid:
            continue
        what = f"epoch {batch.epoch} step {batch.step} row {row}: its"
        if not _is_of(item, rows[row], batch["extra_length"][row] if is_padded else None):
            raise ValueError(f"{what} extra is not item {item}'s")
        if "text" in batch and batch["text"][row] != expected_bytes(item).decode():
            raise ValueError(f"{what} text is not item {item}'s")
        if "sound" in batch:
            first = _first_frame(item, np.asarray(rows[row]))
            if not np.array_equal(batch["sound"][row], expected_sound(item, first)):
                raise ValueError(f"{what} sound is not that of its clip")


def _is_of(item: int, row: Any, length: Any) -> bool:
    if isinstance(row, memoryview):
        return row == expected_bytes(item)
    if np.asarray(row).dtype == np.float32:
        return np.array_equal(np.asarray(row), expected_samples(item)[np.newaxis])
    if np.asarray(row).ndim == 4:
        clip = np.asarray(row)
        return np.array_equal(clip, expected_frames(item, _first_frame(item, clip)))
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


def _first_frame(item: int, clip: np.ndarray) -> int:
    """The frame of the item's video that a clip begins with; 0 if it is none of them."""
    last = FRAMES_OF_FILE - (FRAMES - 1) * STRIDE
    equal = (_frames(item % VIDEOS)[:last] == clip[0, 0]).all(axis=(1, 2))
    return int(equal.argmax())


@functools.cache
def _videos() -> list[bytes]:
    """Lossless, a key frame at each fifth frame, and the luma as it is."""
    with tempfile.TemporaryDirectory() as made:
        inputs: list[Any] = []
        outputs: list[Any] = []
        for video in range(VIDEOS):
            luma = _frames(video)
            chroma = np.full((FRAMES_OF_FILE, HEIGHT * WIDTH // 2), 128, dtype=np.uint8)
            planes = np.concatenate([luma.reshape(FRAMES_OF_FILE, -1), chroma], axis=1)
            path = pathlib.Path(made, str(video))
            path.with_suffix(".yuv").write_bytes(planes.tobytes())
            path.with_suffix(".pcm").write_bytes(_sound(video).tobytes())
            inputs += ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-color_range", "pc"]
            inputs += ["-s", f"{WIDTH}x{HEIGHT}", "-r", FPS, "-i", path.with_suffix(".yuv")]
            inputs += ["-f", "s16le", "-ar", RATE, "-ac", 1, "-i", path.with_suffix(".pcm")]
            outputs += ["-map", 2 * video, "-map", 2 * video + 1, "-threads", 1]
            outputs += ["-c:v", "libx264", "-qp", 0, "-g", 5, "-color_range", "pc"]
            outputs += ["-c:a", "pcm_s16le", path.with_suffix(".mkv")]
        command = ["ffmpeg", "-nostdin", "-loglevel", "error", *map(str, [*inputs, *outputs])]
        subprocess.run(command, check=True, timeout=100)
        return [pathlib.Path(made, f"{video}.mkv").read_bytes() for video in range(VIDEOS)]


def _extra(kind: Kind, item: int) -> bytes:
    if kind in (CLIPS, CLIPS_AND_MORE):
        return _videos()[item % VIDEOS]
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
    if kind in (CLIPS, CLIPS_AND_MORE):
        return _with_clips(kind, made)
    batch = dict(spec["batch"])
    batch["collate"] = {**batch.get("collate", {}), "extra": _collate(kind)}
    made["batch"] = batch
    if kind.collate != "bytes":
        # Behind all other ops: those without `fields` work on what is decoded by then.
        made["stages"] = [*spec["stages"], {"decode_image": {"field": "extra", "mode": "gray"}}]
    return made


def _with_clips(kind: Kind, made: Spec) -> Spec:
    cut = {"frames": FRAMES, "stride": STRIDE, "sampling": "random", "field": "extra"}
    made["source"]["clips"] = cut
    decode = {"decode_video": {"field": "extra", "mode": "gray"}}
    same = {"center_crop": {"size": [HEIGHT, WIDTH], "fields": ["extra"]}}
    made["stages"] = [*made["stages"], decode, same]
    if kind == CLIPS_AND_MORE:
        cut["audio"] = "sound"
        made["stages"].append({"decode_audio": {"field": "sound"}})
        collate = made["batch"].get("collate", {})
        made["batch"] = {
            **made["batch"],
            "collate": {**collate, "text": {"max_bytes": MOST_BYTES}},
        }
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
        parts |= {"text": "txt"} if kind == CLIPS_AND_MORE else {}
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
                    "txt": expected_bytes(item),
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

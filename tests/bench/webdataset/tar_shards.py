# SPDX-License-Identifier: Apache-2.0
"""One set of images in two forms: tar shards, and the same samples as plain files."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pathlib
import tarfile


@dataclasses.dataclass(frozen=True)
class Samples:
    shards: list[pathlib.Path]
    files: pathlib.Path  # a directory a class: KEY.jpg beside KEY.txt
    count: int


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def make(images: pathlib.Path, out: pathlib.Path, count: int, shards: int) -> Samples:
    """`count` samples (jpg, cls, txt) of the images below `images`, again and again from the first.

    A class is a directory of `images`. Samples are dealt out to the shards like cards, so that each
    shard has all classes. Returns when all is written.
    """
    sources = sorted(path for path in images.rglob("*") if path.is_file())
    if not sources:
        raise ValueError(f"there is no file below {images}")
    classes = sorted({path.parent.name for path in sources})
    tars = out / "tars"
    files = out / "files"
    tars.mkdir(parents=True)
    paths = [tars / f"train-{shard:04}.tar" for shard in range(shards)]
    with contextlib.ExitStack() as stack:
        open_tars = [
            stack.enter_context(tarfile.open(path, "w", format=tarfile.USTAR_FORMAT))
            for path in paths
        ]
        for number in range(count):
            source = sources[number % len(sources)]
            label = classes.index(source.parent.name)
            key = f"{number:08}"
            jpg, caption = source.read_bytes(), f"image {number} of class {source.parent.name}"
            folder = files / source.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{key}.jpg").write_bytes(jpg)
            (folder / f"{key}.txt").write_text(caption)
            tar = open_tars[number % shards]
            _add(tar, f"{key}.jpg", jpg)
            _add(tar, f"{key}.cls", str(label).encode())
            _add(tar, f"{key}.txt", caption.encode())
    return Samples(paths, files, count)

# SPDX-License-Identifier: Apache-2.0
"""The rows of ./dev bench rows, arrays of float32, in each form that a loader reads them in."""

from __future__ import annotations

import functools
import io
import itertools
import json
import pathlib
import sys
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generated
import numpy as np

MOST_ROWS = 60_000
MOST_BYTES = 1 << 28
SHARDS = 8  # so that each worker of a loader that divides shards has some
NPY_HEADER = 128  # of an array of one axis
TAR_BLOCK = 512


def count_of(size: int) -> int:
    """How many rows of so many bytes there are."""
    return min(MOST_ROWS, MOST_BYTES // size)


def shard_of(size: int) -> int:
    """How many of them lie in a shard, or in what another loader has in its place."""
    return -(-count_of(size) // SHARDS)


def tar_stride(size: int) -> int:
    """From one row in a shard to the next."""
    return TAR_BLOCK + -(-(NPY_HEADER + size) // TAR_BLOCK) * TAR_BLOCK


def rows(size: int) -> Iterator[np.ndarray]:
    order = np.random.default_rng(size)
    for _ in range(count_of(size)):
        yield order.standard_normal(size // 4, np.float32)


def _npy(row: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, row)
    return out.getvalue()


def _write_tar(directory: pathlib.Path, size: int) -> None:
    numbered = enumerate(rows(size))
    for shard in range(SHARDS):
        path = directory / f"rows-{shard}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for number, row in itertools.islice(numbered, shard_of(size)):
                info = tarfile.TarInfo(f"{number:08}.npy")
                data = _npy(row)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def _write_files(directory: pathlib.Path, size: int) -> None:
    for number, row in enumerate(rows(size)):
        (directory / f"{number:08}.npy").write_bytes(_npy(row))


def _write_table(directory: pathlib.Path, size: int) -> None:
    """Values alone: the column of files is empty."""
    with (directory / "rows.jsonl").open("w") as table:
        for row in rows(size):
            table.write(json.dumps({"x": [round(float(value), 6) for value in row]}) + "\n")


def as_sample(row: np.ndarray) -> dict[str, Any]:
    return {"x": row}


def _write_litdata(directory: pathlib.Path, size: int) -> None:
    import litdata

    litdata.optimize(
        as_sample, list(rows(size)), str(directory), chunk_size=shard_of(size), num_workers=1
    )


def _write_mds(directory: pathlib.Path, size: int) -> None:
    import streaming

    columns = {"x": f"ndarray:float32:{size // 4}"}
    shard = shard_of(size) * size
    with streaming.MDSWriter(out=str(directory), columns=columns, size_limit=shard) as writer:
        for row in rows(size):
            writer.write(as_sample(row))


WRITERS: dict[str, Callable[[pathlib.Path, int], None]] = {
    "tar": _write_tar,
    "files": _write_files,
    "table": _write_table,
    "litdata": _write_litdata,
    "mds": _write_mds,
}


def make(form: str, size: int) -> pathlib.Path:
    """The directory of all rows of so many bytes."""
    return generated.kept(f"rows-{form}-{size}", functools.partial(WRITERS[form], size=size))

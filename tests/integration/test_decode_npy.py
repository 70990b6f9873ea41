# SPDX-License-Identifier: Apache-2.0
"""Arrays out of .npy and .npz files, as numpy writes them and reads them again."""

from __future__ import annotations

import io
import pathlib
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld

ROWS = 8
Array = np.ndarray[Any, Any]


def npy(array: Array, version: tuple[int, int] | None = None, pickled: bool = False) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version, allow_pickle=pickled)
    return file.getvalue()


def npz(compressed: bool, **arrays: Array) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


@pytest.fixture
def load(daemon: Any, tmp_path: pathlib.Path) -> Callable[..., spdld.Loader]:
    def make(
        files: list[bytes],
        decode: str,
        batch: str = "size: 4, max_bytes: 1MiB",
        on_error: str = "fail",
    ) -> spdld.Loader:
        root = tmp_path / "arrays"
        root.mkdir(exist_ok=True)
        for i, content in enumerate(files):
            (root / f"{i:03}").write_bytes(content)
        path = tmp_path / "arrays.yaml"
        path.write_text(
            "pipeline: arrays\nsource: {files: {root: arrays, field: emb}}\n"
            f"stages: [fetch, {{decode_npy: {{field: emb, {decode}}}}}]\n"
            f"batch: {{{batch}}}\non_error: {{decode: {on_error}}}\n"
        )
        return spdld.Loader(path, address=daemon.address, replace=True)

    return make


def rows_of(loader: spdld.Loader) -> list[Array]:
    with loader:
        return [np.array(row) for batch in loader for row in batch["emb"]]


def expect_equal(rows: list[Array], arrays: list[Array]) -> None:
    assert len(rows) == len(arrays)
    for row, array in zip(rows, arrays, strict=True):
        assert row.shape == array.shape
        assert row.dtype == array.dtype.newbyteorder("=")
        assert row.tobytes() == np.ascontiguousarray(array, dtype=row.dtype).tobytes()


DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_those_that_numpy_wrote(load: Callable[..., Any], dtype: str) -> None:
    rng = np.random.default_rng(3)
    arrays: list[Array] = []
    for i in range(ROWS):
        array = (rng.random((i, 5, 3)) * 100).astype(dtype)
        if i % 2:
            array = np.asfortranarray(array)
        if i % 3 == 1:
            array = array.astype(array.dtype.newbyteorder(">"))
        arrays.append(array)
    decode = f"dtype: {dtype}, shape: [-1, 5, 3]"
    versions = [None, (1, 0), (2, 0), (3, 0)]
    files = [npy(array, version=versions[i % 4]) for i, array in enumerate(arrays)]
    expect_equal(rows_of(load(files, decode)), arrays)
    packed = [npz(i % 2 == 0, other=arrays[0], emb=array) for i, array in enumerate(arrays)]
    expect_equal(rows_of(load(packed, f"{decode}, array: emb")), arrays)


def test_arrays_of_one_shape_are_stacked(load: Callable[..., Any]) -> None:
    arrays = [np.arange(12, dtype=np.float32).reshape(3, 4) + i for i in range(ROWS)]
    with load(
        [npy(array) for array in arrays], "dtype: float32, shape: [3, 4]", "size: 4"
    ) as dense:
        batch = next(iter(dense))
        assert (batch["emb"] == np.stack(arrays[:4])).all()
    scalars = [npy(np.array(i, dtype=np.int64)) for i in range(ROWS)]
    with load(scalars, "dtype: int64, shape: []", "size: 4") as single:
        assert next(iter(single))["emb"].tolist() == [0, 1, 2, 3]


def test_arrays_are_padded_and_know_how_long_they_were(load: Callable[..., Any]) -> None:
    files = [npy(np.full((i, 2), i, dtype=np.int32)) for i in range(ROWS)]
    batch_spec = "size: 4, collate: {emb: {pad: -1, max_bytes: 1KiB}}"
    with load(files, "dtype: int32, shape: [-1, 2]", batch_spec) as padded:
        for batch in padded:
            assert batch["emb_length"].tolist() == list(batch.indices)
            for i, row in zip(batch.indices, batch["emb"], strict=True):
                assert (row[:i] == i).all() and (row[i:] == -1).all()


def test_an_archive_that_zipfile_made_is_read(load: Callable[..., Any]) -> None:
    file = io.BytesIO()
    array = np.arange(70_000, dtype=np.int16)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", "not an array")
        with archive.open("deep/emb.npy", "w", force_zip64=True) as member:
            member.write(npy(array))
        archive.comment = b"made by hand"
    decode = "dtype: int16, array: deep/emb"
    expect_equal(rows_of(load([file.getvalue()], decode, "size: 1, max_bytes: 1MiB")), [array])


GOOD = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize(
    ("content", "decode", "told"),
    [
        (npy(GOOD.astype(">f8")), "", r"dtype float64, and decode_npy.dtype is float32"),
        (npy(GOOD.reshape(1, 3)), "", r"shape \[1, 3\], and decode_npy.shape is \[-1\]"),
        (npy(GOOD)[:-1], "", r"promises 12 bytes of values, and 11 follow"),
        (npy(GOOD)[:40], "", r"ends in its header"),
        (npy(np.array([None, {}]), pickled=True), "", r"'\|O', object, which are pickled"),
        (npy(GOOD.astype("c8")), "", r"'<c8', which no tensor has"),
        (npy(np.zeros(2, dtype=[("a", "f4")])), "", r"records of several fields"),
        (b"\xff\xd8\xff\xe0", "", r"neither an .npy nor an .npz"),
        (npz(True, emb=GOOD), "", r"write 'decode_npy: \{array: NAME\}'"),
        (npz(True, emb=GOOD), ", array: x", r"no array 'x'; there are 'emb'"),
        (npz(True, emb=GOOD)[:-30], ", array: emb", r"no directory, as if it were cut off"),
        (npy(GOOD), ", array: emb", r"leave 'array' out"),
    ],
)
def test_a_file_that_is_wrong_is_an_error_of_its_item(
    load: Callable[..., Any], content: bytes, decode: str, told: str
) -> None:
    with pytest.raises(spdld.PipelineError, match=r"item 0 .*'emb' .*" + told):
        next(iter(load([content], "dtype: float32" + decode, "size: 1, max_bytes: 1MiB")))


def test_a_file_that_is_wrong_is_replaced(load: Callable[..., Any]) -> None:
    files = [npy(GOOD), npy(GOOD)[:-1], npy(GOOD), npy(GOOD)]
    with load(files, "dtype: float32, shape: [3]", "size: 4", on_error="replace") as replaced:
        batch = next(iter(replaced))
        assert batch.valid.tolist() == [True, False, True, True]
        assert (batch["emb"] == GOOD).all()


def test_an_array_beyond_its_bound_says_what_to_raise(load: Callable[..., Any]) -> None:
    files = [npz(True, emb=np.zeros(100_000, dtype=np.float32))]
    batch_spec = "size: 1, collate: {emb: {kind: ragged, max_bytes: 1000}}"
    with pytest.raises(
        spdld.PipelineError, match=r"'emb' takes 400000 bytes.*batch.collate.emb.max_bytes"
    ):
        next(iter(load(files, "dtype: float32, array: emb", batch_spec)))


@pytest.mark.parametrize(
    ("decode", "told"),
    [
        ("shape: [3]", "decode_npy.dtype' is missing"),
        ("dtype: complex64", "float32"),
        ("dtype: float32, shape: [0]", r"shape is \[0\]"),
        ("dtype: float32, shape: [-2]", "-1"),
        ("dtype: float32, array: a", "needs a bound"),
    ],
)
def test_stages_that_cannot_be_are_refused(
    load: Callable[..., Any], decode: str, told: str
) -> None:
    with pytest.raises(spdld.PipelineError, match=told):
        len(load([npy(GOOD)], decode, "size: 1"))

# SPDX-License-Identifier: Apache-2.0
"""A user's dataset as a source: its items, and what the daemon is told of all of them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

_INT64, _FLOAT64, _BOOL, _TEXT = 1, 2, 3, 4  # columns, as server/op/value.h has them
_MOST_BYTES = 256 << 20  # of the description; a pause for others' rows, too
_WAY_OUT = (
    "an order, cursors and shards go by the numbers of items: give a dataset that has __len__ and "
    "__getitem__, or write what it iterates over to tar shards or a table once"
)


class Items:
    """Called with an item's index, and with how many items there are to be."""

    def __init__(self, call: str, made: object, arguments: dict[str, Any]) -> None:
        self.call = call
        self.dataset = _dataset(call, made, arguments)
        self.size = len(self.dataset)

    def __call__(self, index: int, items: int) -> Any:
        if items != self.size:
            raise RuntimeError(
                f"{self.call} has {self.size} items now, and the pipeline was applied with {items}: "
                "apply it again, or bring back what it reads"
            )
        return self.dataset[index]

    def description(self) -> bytes:
        """What the listing knows of the items: see server/source/python_source.h."""
        columns = getattr(self.dataset, "columns", None)
        named = columns() if callable(columns) else {}
        if not isinstance(named, dict):
            raise TypeError(
                f"{self.call}: columns() gave a {type(named).__name__}, and no dict of columns by "
                "their names"
            )
        parts = [struct.pack("<2Q", self.size, len(named))]
        for name, values in named.items():
            parts += self._column(name, values)
        classes = _classes(self.dataset)
        parts.append(struct.pack("<Q", len(classes)))
        parts += [_string(name) for name in classes]
        size = sum(map(len, parts))
        if size > _MOST_BYTES:
            raise ValueError(
                f"{self.call}: columns() takes {size} bytes, and may take {_MOST_BYTES}: leave out "
                "what no condition asks for, or give numbers for texts"
            )
        return b"".join(parts)

    def _column(self, name: str, values: Iterable[Any]) -> list[bytes]:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"{self.call}: columns(): {name!r} is no name of a field")
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
            values = list(values)  # an array of texts would be as wide as the longest
            if values and all(isinstance(value, str) for value in values):
                return self._texts(name, values)
            values = self._numbers(name, values)
        self._check_count(name, values.shape)
        if values.dtype.kind == "b":
            return [_head(name, _BOOL, 0, 1), _sized(values)]
        if values.dtype.kind == "f":
            return [_head(name, _FLOAT64, 0, 8), _sized(values.astype(np.float64))]
        if values.dtype.kind == "u" and values.size and values.max() > np.iinfo(np.int64).max:
            raise ValueError(f"{self.call}: columns(): {name!r} holds more than int64 does")
        return [_head(name, _INT64, 0, 8), _sized(values.astype(np.int64))]

    def _check_count(self, name: str, shape: tuple[int, ...]) -> None:
        if shape != (self.size,):
            raise ValueError(
                f"{self.call}: columns(): {name!r} has the shape {shape}, and needs one value for "
                f"each of {self.size} items"
            )

    def _texts(self, name: str, values: list[str]) -> list[bytes]:
        self._check_count(name, (len(values),))
        texts = [value.encode() for value in values]
        sizes = np.array([0, *map(len, texts)], np.uint64)
        head = _head(name, _TEXT, int(sizes.max()), 0, len(sizes))
        return [head, np.cumsum(sizes).tobytes(), _sized(np.frombuffer(b"".join(texts), np.uint8))]

    def _numbers(self, name: str, values: list[Any]) -> np.ndarray:
        for kinds, dtype in (
            ((bool, np.bool_), np.bool_),
            ((int, np.integer), np.int64),
            ((int, float, np.integer, np.floating), np.float64),
        ):
            if all(isinstance(value, kinds) for value in values):
                try:
                    return np.array(values, dtype)
                except OverflowError as error:
                    raise ValueError(f"{self.call}: columns(): {name!r}: {error}") from None
        found = sorted({type(value).__name__ for value in values})
        raise TypeError(
            f"{self.call}: columns(): {name!r} holds {', '.join(found[:4])}, and a column holds "
            "integers, floats, bools or texts"
        )


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data


def _head(name: str, kind: int, max_bytes: int, width: int, offsets: int = 0) -> bytes:
    return _string(name) + struct.pack("<BQBQ", kind, max_bytes, width, offsets)


def _sized(array: np.ndarray) -> bytes:
    return struct.pack("<Q", array.nbytes) + array.tobytes()


def _is_iterable_alone(dataset: object) -> bool:
    return any(
        isinstance(dataset, getattr(sys.modules.get(module), name, ()))
        for module, name in (
            ("torch.utils.data", "IterableDataset"),
            ("datasets", "IterableDataset"),
        )
    )


def _dataset(call: str, made: object, arguments: dict[str, Any]) -> Any:
    is_one = not isinstance(made, type) and hasattr(made, "__getitem__")
    if is_one and arguments:
        raise TypeError(f"{call} is a dataset already, and takes no args")
    dataset = made if is_one else _call(call, made, arguments)
    if _is_iterable_alone(dataset):
        raise TypeError(f"{call} can only be iterated over: {_WAY_OUT}")
    for method in ("__len__", "__getitem__"):
        if not hasattr(dataset, method):
            raise TypeError(f"{call} is a {type(dataset).__name__} without {method}: {_WAY_OUT}")
    return dataset


def _call(call: str, made: object, arguments: dict[str, Any]) -> object:
    if not callable(made):
        raise TypeError(
            f"{call} is a {type(made).__name__}, and neither a dataset nor what makes one"
        )
    function: Callable[..., object] = made
    return function(**arguments)


def _classes(dataset: object) -> list[str]:
    """Those of torchvision's datasets; else none."""
    classes = getattr(dataset, "classes", None)
    if not isinstance(classes, (list, tuple)) or not all(isinstance(c, str) for c in classes):
        return []
    if "" in classes or len(set(classes)) < len(classes):
        return []  # what no condition could name
    return list(classes)

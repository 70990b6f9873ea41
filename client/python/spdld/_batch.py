# SPDX-License-Identifier: Apache-2.0
"""Batches: named tensors in the daemon's memory."""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ._errors import DeviceError, PipelineError
from ._state import state_of

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from . import _core

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:
    _bfloat16 = None

# Libspdld's loader that a batch came from, as long as that is there.
Asks = Callable[[], "_core.Loader | None"]

View = Literal["private", "copy", "shared"]

# What ``a, b = batch`` and ``for a, b in batches`` are compiled to.
_UNPACKING = (opcode.opmap["UNPACK_SEQUENCE"], opcode.opmap["UNPACK_EX"])


class Packed(NamedTuple):
    """Rows of different size in one piece.

    ``values``: one-dimensional, read-only, all rows after each other; on a device, what
    ``from_dlpack()`` takes; of a batch's copy, its own to write. ``offsets``: int64[rows + 1], row *i* is
    ``values[offsets[i]:offsets[i + 1]]``. ``shapes``: int64[rows, ndim], the shape of each row; for
    a field of bytes, its length.
    """

    values: np.ndarray | _core.Exchange
    offsets: np.ndarray
    shapes: np.ndarray


class Rows:
    """What the two kinds of batch have in common: everything about the rows."""

    __slots__ = ("__weakref__", "_asks", "_core", "_uris")

    def __init__(self, core: _core.Batch, asks: Asks | None = None) -> None:
        self._core = core
        self._asks = asks
        self._uris: list[str] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that the batch belongs to, from 0."""
        return self._core.epoch

    @property
    def step(self) -> int:
        """The index of the global batch in its epoch, from 0: the same on every rank."""
        return self._core.step

    @property
    def rows(self) -> int:
        """Number of rows, the invalid ones included."""
        return self._core.rows

    @property
    def pipeline_version(self) -> int:
        """Version of the pipeline that made the batch: counts up with each one applied."""
        return self._core.pipeline_version

    @property
    def indices(self) -> np.ndarray:
        """int64[rows]: index in the dataset of what each row holds."""
        return self._core.indices()

    @property
    def valid(self) -> np.ndarray:
        """bool[rows]: False for a row that was substituted, rejected or is padding."""
        return self._core.valid()

    @property
    def uris(self) -> list[str]:
        """What each row's item is called: for ``files``, its path relative to the root.

        No batch carries it: the daemon is asked at the first use, by ``indices``, which takes one
        round trip. A row that is not ``valid`` has its substitute's.

        Raises PipelineError if the loader is gone or the job has gone on to other data meanwhile,
        and what ``next()`` raises where the daemon is away.
        """
        if self._uris is None:
            digest = self._core.order_digest
            loader = None if self._asks is None else self._asks()
            if loader is None:
                raise PipelineError(
                    "the loader that this batch came from is gone, and it alone can ask what its "
                    "rows are called: keep the loader, or read batch.uris before"
                )
            self._uris = loader.uris(self.indices.tolist(), digest)
        return self._uris

    @property
    def state(self) -> dict[str, int | str]:
        """The position after this batch, as ``Loader.state_dict()`` says it of the last one.

        Whoever takes batches ahead of using them saves the state of the one that was used last.
        """
        return state_of(self._core.state())

    @property
    def released(self) -> bool:
        """Whether release() has ended the lease."""
        return self._core.released

    def text(self, name: str) -> list[str]:
        """The rows of a field of bytes as texts.

        Raises KeyError if there is no such field, PipelineError if it is not of bytes or not UTF-8.
        """
        if self._kind(name) != "bytes":
            raise PipelineError(
                f"'{name}' is {self._kind(name)} {self._core.dtype(name)}, not text: use batch['{name}']"
            )
        try:
            return [str(row, "utf-8") for row in self._byte_rows(name)]
        except UnicodeDecodeError as error:
            raise PipelineError(
                f"'{name}' in step {self.step} of epoch {self.epoch} is not UTF-8 ({error}): "
                f"use batch['{name}'] for its bytes"
            ) from error

    def packed(self, name: str) -> Packed:
        """A field whose rows differ in size, in one piece and without a copy of its values.

        Raises KeyError if there is no such field, PipelineError if its rows are of one shape.
        """
        if self._kind(name) == "dense":
            raise PipelineError(f"the rows of '{name}' have one shape: use batch['{name}']")
        offsets = np.array(self._core.offsets(name), dtype=np.int64)
        if self._kind(name) == "ragged":
            shapes = np.array(self._core.shapes(name), dtype=np.int64)
        else:
            shapes = np.diff(offsets)[:, None]
        on_device = self._core.on_device(name)
        values = self._core.exchange(name) if on_device else _as_numpy(self._core, name)
        return Packed(values, offsets, shapes)

    def dlpack(self, name: str) -> _core.Exchange:
        """The field for ``from_dlpack()`` of numpy, torch, jax or any other library.

        In main memory it is a private copy-on-write view: what is written to it nobody else sees.
        Rows that differ in size come in one dimension, as in ``packed(name).values``.
        """
        self._kind(name)
        return self._core.exchange(name)

    def torch(self, name: str, *, view: View = "private") -> torch.Tensor | list[torch.Tensor]:
        """The field as a torch tensor; a list of them where rows differ in size.

        On a device the tensor is ready for torch's current stream there. Use on another one needs
        what torch asks for then, and ``record_stream()``; ``view="copy"`` gives torch's own copy
        there. It may be written to unless the daemon brought it there ("cuda ipc" in
        ``loader.stats()``): a kernel that writes to such a batch fails, and no other runs after it.
        In main memory, ``view``: "private" shares the daemon's memory until it is written to, page
        by page; what is written is seen by this process alone, and the lease lasts as long as the tensor.
        "copy" holds no lease. "shared" is the daemon's memory itself: **to write to it ends the
        process** (SIGSEGV), and torch knows no read-only tensors.
        """
        if self._kind(name) == "dense":
            return _as_torch(self._core, name, view)
        values = _as_torch(self._core, name, view)
        rows = [values[a:b] for a, b in pairwise(self._core.offsets(name))]
        if self._kind(name) == "bytes":
            return rows
        shapes = self._core.shapes(name)
        return [row.reshape(tuple(shape)) for row, shape in zip(rows, shapes, strict=True)]

    def copy(self) -> Self:
        """The same batch in this process's own main memory: it holds no lease, and may be written to.

        One that lies on a device is waited for; DeviceError if that fails.
        """
        return type(self)(self._core.copy(), self._asks)

    @property
    def device(self) -> str:
        """Where large fields lie: "cpu", or "cuda:N" of a loader with ``device=``."""
        return "cpu" if self._core.device < 0 else f"cuda:{self._core.device}"

    def record_stream(self, stream: object) -> None:
        """What ``stream`` does with the batch until this is let go of comes before it is filled again.

        Needed where a stream reads it that it was not handed to. ``stream``: a torch stream, or
        another object with ``cuda_stream`` or ``ptr``, or the number of a CUstream. Without a
        device it does nothing. Raises LeaseError while the stream is captured into a graph.
        """
        self._core.record_stream(_stream_number(stream))

    def release(self, stream: object = None) -> None:
        """Ends the lease now. Raises LeaseError while arrays or tensors of the batch are held.

        Not needed as a rule: the lease ends when the batch and all that came from it are gone.
        What was copied at hand-out stays readable. Memory on a device is filled again when the
        streams are through that the batch was handed to, and ``stream``, as for record_stream().
        """
        if stream is not None:
            self.record_stream(stream)
        self._core.release()

    def __iter__(self) -> Iterator[str]:
        # The names would be taken for the tensors.
        caller = sys._getframe(1)
        if caller.f_code.co_code[caller.f_lasti] in _UNPACKING:
            names = self._core.names
            raise TypeError(
                f"a batch is a mapping ({', '.join(names)}) and cannot be unpacked: write "
                f"batch[{names[0]!r}], or Loader(..., output={tuple(names)!r}) for tuples of tensors"
            )
        return iter(self._core.names)

    def __len__(self) -> int:
        return len(self._core.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._core.has(name)

    # Mapping would compare contents and forbid hashing.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def _kind(self, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(
                f"a batch is a mapping of its fields: batch[{self._core.names[0]!r}], not "
                f"batch[{name!r}]"
            )
        if not self._core.has(name):
            raise KeyError(
                f"there is no field {name!r}: this pipeline gives {', '.join(self._core.names)}"
            )
        return self._core.kind(name)

    def _byte_rows(self, name: str) -> list[memoryview]:
        values = memoryview(_as_numpy(self._core, name))
        return [values[a:b] for a, b in pairwise(self._core.offsets(name))]

    def __repr__(self) -> str:
        where = f"epoch {self.epoch}, step {self.step}, " if hasattr(self, "epoch") else ""
        what = ", released" if self.released else f": {', '.join(self._core.names)}"
        return f"<spdld.{type(self).__name__} {where}{self.rows} rows{what}>"


class Batch(Rows, Mapping[str, Any]):
    """A finished batch: a mapping from field names to numpy arrays.

    ``batch["image"]`` is a read-only array of shape (rows, ...) that copies nothing: it shows the
    daemon's memory, which is leased to this process until the batch and all its arrays are gone.
    Fields of up to 64 KiB (labels) were copied at hand-out, so that to keep them holds no lease.
    A field whose rows differ in size is a list of arrays, one of bytes a list of memoryviews, one
    of text (a caption) a list of str. Padded rows are an array as large as the batch needs.
    bfloat16 needs the package ml_dtypes; without it its bits come as uint16.
    Of a loader with a device, a field that lies there is no array: it is what ``from_dlpack()`` of
    torch, cupy or jax takes, and what has ``__cuda_array_interface__``, ``shape`` and ``dtype``.

    Threads may read a batch at the same time. In a forked child it must not be touched.
    """

    __slots__ = ()

    def __init__(self, core: _core.Batch, asks: Asks | None = None) -> None:
        if isinstance(core, Mapping):  # torch's default_convert takes a dict then
            raise TypeError(
                "a spdld.Batch is the daemon's and is not made of arrays: Loader(..., "
                "output='torch') gives batches that can be rebuilt"
            )
        super().__init__(core, asks)

    def __getitem__(self, name: str) -> Any:
        kind = self._kind(name)
        if self._core.on_device(name):
            if kind == "dense":
                return self._core.exchange(name)
            return [self._core.device_row(name, row) for row in range(self.rows)]
        if kind == "dense":
            return _as_numpy(self._core, name)
        if kind == "bytes":
            return self.text(name) if self._core.is_text(name) else self._byte_rows(name)
        values, offsets, shapes = self.packed(name)
        return [
            values[a:b].reshape(shape)
            for (a, b), shape in zip(_bounds(offsets), shapes.tolist(), strict=True)
        ]

    def __getattr__(self, name: str) -> Any:
        told = f"{type(self).__name__!r} object has no attribute {name!r}"
        if not name.startswith("_") and self._core.has(name):
            told += f": write batch[{name!r}]"
        elif name in ("to", "cuda", "pin_memory"):
            told += ": Loader(..., output='torch') gives batches of torch tensors, which have"
        raise AttributeError(told)


def _bounds(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    return pairwise(offsets.tolist())


def _as_numpy(core: _core.Batch, name: str) -> np.ndarray:
    array = core.values(name)
    if _bfloat16 is not None and core.dtype(name) == "bfloat16":
        array = array.view(_bfloat16)
    return array


def _as_torch(core: _core.Batch, name: str, view: View) -> torch.Tensor:
    if view == "private":
        exchange = core.exchange(name)
    elif view == "copy":
        exchange = core.exchange(name, copy=True)
    elif view == "shared":
        exchange = core.shared(name)
    else:
        raise ValueError(f"view is {view!r}: it is 'private', 'copy' or 'shared'")
    torch, dtype = _torch(), core.dtype(name)
    if dtype == "uint16" and not hasattr(torch, "uint16"):
        raise PipelineError(
            f"'{name}' is uint16, which torch has since 2.3, and this is {torch.__version__}: take "
            "it as numpy (output='batch'), or let the pipeline end with "
            "'to_dtype: {dtype: float32}'"
        )
    stream = None
    if core.on_device(name):
        stream = current_stream(core)
    tensor = torch.utils.dlpack.from_dlpack(exchange._torch_capsule(stream))
    if view == "copy" and core.on_device(name):
        tensor = tensor.clone()
    return tensor.view(getattr(torch, dtype)) if dtype in ("bool", "uint16") else tensor


def current_stream(core: _core.Batch) -> int:
    """Torch's current stream of the device that the batch lies on."""
    torch = _torch()
    check_cuda(torch)
    return _stream_number(torch.cuda.current_stream(core.device)) or 1


def check_cuda(torch: Any) -> None:
    """Raises DeviceError if this torch can have no tensors on a GPU. Begins nothing there."""
    if torch.backends.cuda.is_built():
        return
    raise DeviceError(
        f"torch {torch.__version__} was built without CUDA, and has no tensors on a GPU: install one "
        "that was built with it, take output='batch', whose fields other libraries take there by "
        "from_dlpack(), or leave device= out"
    )


def _stream_number(stream: object) -> int:
    for name in ("cuda_stream", "ptr"):  # torch's, cupy's
        stream = getattr(stream, name, stream)
    if not isinstance(stream, int) or isinstance(stream, bool) or stream < 0:
        raise TypeError(f"stream is {stream!r}: give a torch stream or the number of a CUstream")
    return stream


def _torch() -> Any:
    import torch
    import torch.utils.dlpack

    return torch

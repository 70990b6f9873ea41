# SPDX-License-Identifier: Apache-2.0
"""Batches of torch tensors, as frameworks take them: moved, pinned and rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._batch import Asks, Rows, current_stream
from ._errors import PipelineError
from ._state import Cursor

if TYPE_CHECKING:
    import torch


class TorchBatch(Rows, Mapping[str, Any]):
    """A finished batch (``output="torch"``): a mapping from field names to torch tensors.

    A field whose rows differ in size is a list of tensors, one of text a list of str.

    The tensors may be written to: see ``torch(view="private")``. Each is made at its first use and
    kept, so that ``batch["image"]`` gives the same tensor again; release() lets go of them first.

    ``to()`` and ``pin_memory()`` give a TorchBatch that still knows its epoch, step and rows.
    ``TorchBatch({name: tensor})``, which is how frameworks rebuild what they take apart, makes one
    of tensors alone.
    """

    __slots__ = ("_tensors",)

    def __init__(self, source: _core.Batch | Mapping[str, Any], asks: Asks | None = None) -> None:
        self._tensors: dict[str, Any] = {}
        if isinstance(source, Mapping):
            self._tensors.update(source)
            super().__init__(_Facts(self._tensors), asks)
        else:
            super().__init__(source, asks)

    def __getitem__(self, name: str) -> Any:
        tensor = self._tensors.get(name)
        if tensor is None:
            is_text = self._kind(name) == "bytes" and self._core.is_text(name)
            tensor = self._tensors[name] = self.text(name) if is_text else self.torch(name)
        elif not isinstance(self._core, _Facts) and self._core.on_device(name):
            # Torch's current stream may be another one by now.
            self._core.make_ready(current_stream(self._core))
        return tensor

    def to(self, device: torch.device | str | int, *, non_blocking: bool = False) -> TorchBatch:
        """The batch with its tensors on a device.

        Those that are there already are the same tensors, and hold the lease as before: all large
        ones of a loader with ``device=``, which copies ahead. Of a loader without it the memory is
        not pinned, so that a copy to a GPU with ``non_blocking=True`` is one that waits; after
        pin_memory() it does not.
        """
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> TorchBatch:
        """The batch with its tensors copied to pinned memory. Needs a GPU, as torch does.

        Tensors on a device stay as they are.
        """
        return self._each(
            lambda tensor: tensor.pin_memory() if tensor.device.type == "cpu" else tensor
        )

    def copy(self) -> TorchBatch:
        """The same batch in this process's own memory: it holds no lease.

        A loader's batch that lies on a device comes to main memory, and is waited for.
        """
        if isinstance(self._core, _Facts):
            return self._each(lambda tensor: tensor.clone())
        copied = super().copy()
        # What was written to a tensor is in no copy of the daemon's memory.
        for name, field in self._tensors.items():
            copied._tensors[name] = _changed(field, lambda tensor: tensor.to("cpu", copy=True))
        return copied

    def release(self, stream: object = None) -> None:
        """Ends the lease now. Raises LeaseError while tensors of the batch are held elsewhere."""
        if stream is not None:
            self.record_stream(stream)
        self._tensors = {}
        super().release()

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> TorchBatch:
        changed = TorchBatch(
            {name: _changed(field, change) for name, field in self.items()}, self._asks
        )
        if hasattr(self._core, "epoch"):
            changed._core.remember(self._core)
        return changed

    def __reduce__(self) -> tuple[Any, ...]:
        facts = _Facts({})
        if hasattr(self._core, "epoch"):
            facts.remember(self._core)
        return _unpickled, (dict(self.items()), vars(facts), self._uris)


def _unpickled(
    tensors: dict[str, Any], facts: dict[str, Any], uris: list[str] | None
) -> TorchBatch:
    batch = TorchBatch(tensors)
    if "epoch" in facts:
        vars(batch._core).update(facts, names=list(tensors))
    batch._uris = uris
    return batch


def _changed(field: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The tensors of a field, changed. A framework may put other things into a batch: they stay."""
    if isinstance(field, (list, tuple)):
        return type(field)([_changed(row, change) for row in field])
    return change(field) if hasattr(field, "pin_memory") else field


def _rows_of(field: Any) -> int:
    shape = getattr(field, "shape", None)
    if shape:
        return int(shape[0])
    return len(field) if isinstance(field, list) else 0


class _Facts:
    """Stands for libspdld's batch where the tensors are elsewhere, and knows what it said of them.

    Of a batch that was made of tensors alone only their names are known.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self.names = list(tensors)
        self.rows = max((_rows_of(field) for field in tensors.values()), default=0)
        self.released = False

    def remember(self, batch: _core.Batch | _Facts) -> None:
        self.epoch, self.step, self.rows = batch.epoch, batch.step, batch.rows
        self.pipeline_version = batch.pipeline_version
        self.order_digest = batch.order_digest
        self._state = batch.state()
        self._indices, self._valid = np.array(batch.indices()), np.array(batch.valid())

    def indices(self) -> np.ndarray:
        return self._indices

    def valid(self) -> np.ndarray:
        return self._valid

    def state(self) -> Cursor:
        return self._state

    def has(self, name: str) -> bool:
        return name in self.names

    def kind(self, name: str) -> str:
        state = "released" if self.released else "moved or rebuilt: only its tensors are here"
        raise PipelineError(f"'{name}' of a batch that was {state}; ask the one of the loader")

    def release(self) -> None:
        self.released = True

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a batch that was rebuilt from its tensors does not know its {name.strip('_')}: take it "
            "from the loader's batch, or along in tuples: output=('image', 'label', 'valid')"
        )

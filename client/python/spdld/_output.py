# SPDX-License-Identifier: Apache-2.0
"""What ``output=`` makes of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core
from ._batch import Asks, Batch, check_cuda
from ._torch_batch import TorchBatch

# What is known of a batch's rows and can stand in a tuple, unless a field is called so.
_OF_ROWS = ("indices", "valid", "uris")


def maker(output: str | Sequence[str], device: str = "") -> Callable[[_core.Batch, Asks], Any]:
    """What makes the thing to hand out from libspdld's batch, and from who can be asked of it.

    Raises DeviceError if torch has no tensors on ``device``, where that is said.
    """
    if output == "batch":
        return Batch
    if isinstance(output, str) and output != "torch":
        raise ValueError(f"output is {output!r}: it is 'batch', 'torch' or a tuple of field names")
    names = () if output == "torch" else tuple(output)
    if output != "torch" and not (names and all(isinstance(name, str) for name in names)):
        raise ValueError(f"output is {output!r}: name at least one field")
    try:
        import torch  # at once, so that its absence is known before training starts
    except ImportError as error:
        raise ImportError(
            f"output={output!r} needs torch, which is not installed: install it, or take "
            "output='batch' for numpy arrays"
        ) from error
    if device:
        check_cuda(torch)
    if output == "torch":
        return TorchBatch

    def part(batch: TorchBatch, name: str) -> Any:
        if name in _OF_ROWS and name not in batch:
            value = getattr(batch, name)
            return value if name == "uris" else torch.from_numpy(np.array(value))
        return batch[name]

    def make(core: _core.Batch, asks: Asks) -> tuple[Any, ...]:
        batch = TorchBatch(core, asks)
        return tuple([part(batch, name) for name in names])

    return make

# SPDX-License-Identifier: Apache-2.0
"""What ``output=`` makes of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _core
from ._batch import Batch, TorchBatch


def maker(output: str | Sequence[str]) -> Callable[[_core.Batch], Any]:
    """What makes the thing to hand out from libspdld's batch."""
    if output == "batch":
        return Batch
    if isinstance(output, str) and output != "torch":
        raise ValueError(f"output is {output!r}: it is 'batch', 'torch' or a tuple of field names")
    names = () if output == "torch" else tuple(output)
    if output != "torch" and not (names and all(isinstance(name, str) for name in names)):
        raise ValueError(f"output is {output!r}: name at least one field")
    try:
        import torch  # noqa: F401 - at once, so that its absence is known before training starts
    except ImportError as error:
        raise ImportError(f"output={output!r} needs torch, which is not installed") from error
    if output == "torch":
        return TorchBatch

    def make(core: _core.Batch) -> tuple[Any, ...]:
        batch = TorchBatch(core)
        return tuple(batch[name] for name in names)

    return make

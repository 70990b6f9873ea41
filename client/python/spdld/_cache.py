# SPDX-License-Identifier: Apache-2.0
"""Headspace analysis: how fast would training be if loading cost nothing?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ._batch import Rows


class CacheLoader:
    """Gives what ``loader`` gives for a while, then the same few batches over and over.

    The first ``num_caches`` batches are copied on their way through. Once
    ``return_caches_after`` batches were given, counted over all epochs, no more come from the
    loader: the copies are repeated without an end, and cost no loading. Step time before against
    step time after is the headspace. As the second part never ends, leave it by ``break``.

    Copies hold no lease and are of the type that was copied: Batch, TorchBatch, arrays, tensors,
    and tuples, lists and dicts of these. The copies are handed out themselves: what the caller
    writes to them stays.
    """

    def __init__(self, loader: Iterable[Any], num_caches: int, return_caches_after: int) -> None:
        if num_caches < 1:
            raise ValueError(f"num_caches is {num_caches}: at least one batch must be kept")
        if return_caches_after < num_caches:
            raise ValueError(
                f"return_caches_after is {return_caches_after}: it must be at least num_caches "
                f"({num_caches}), as the copies are made before they are returned"
            )
        self._loader = loader
        self._num_caches = num_caches
        self._return_caches_after = return_caches_after
        self._caches: list[Any] = []
        self._given = 0

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        if self._given < self._return_caches_after:
            for batch in self._loader:
                if len(self._caches) < self._num_caches:
                    self._caches.append(_copy(batch))
                self._given += 1
                yield batch
                del batch  # ends the lease before the next one is asked for
                if self._given >= self._return_caches_after:
                    break
            else:
                return
        while True:
            yield from self._caches


def _copy(value: Any) -> Any:
    if isinstance(value, Rows):
        return value.copy()
    if isinstance(value, Mapping):
        return {name: _copy(field) for name, field in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_copy, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(_copy, value))
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, memoryview):
        return bytes(value)
    if hasattr(value, "detach") and hasattr(value, "clone"):
        return value.detach().clone()
    return value

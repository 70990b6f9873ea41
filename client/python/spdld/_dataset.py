# SPDX-License-Identifier: Apache-2.0
"""A loader in the shape that torch's DataLoader takes. Imports torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from ._loader import Loader


_BATCHES = (
    "a loader gives batches that are made, and a DataLoader with a batch size would make batches of "
    "them: write DataLoader(loader.as_dataset(), batch_size=None); how many rows a batch has is the "
    "pipeline's, or Loader(..., batch_size=N)"
)
_NO_WORKERS = (
    "a loader cannot be read by DataLoader's workers, and needs none, since the daemon works ahead: "
    "write DataLoader(loader.as_dataset(), batch_size=None, num_workers=0)"
)


class LoaderDataset(IterableDataset):
    """What ``Loader.as_dataset()`` gives: each item is a batch.

    It has no set_epoch(), which Accelerate and others call with a count of their own: loops go on
    from where the loader is.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(_NO_WORKERS)
        # The DataLoader's fetcher, as it is about to collect items into batches.
        if sys._getframe(1).f_locals.get("auto_collation"):
            raise ValueError(_BATCHES)
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """That of the loader: a DataLoader that keeps positions (torchdata's) saves and loads it."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """That of the loader."""
        self.loader.load_state_dict(state)

    def __reduce__(self) -> tuple[Any, ...]:
        raise RuntimeError(_NO_WORKERS)  # for a worker that is not forked

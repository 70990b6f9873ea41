# SPDX-License-Identifier: Apache-2.0
"""Which rank this process is, where torch.distributed knows. libspdld reads the environment."""

from __future__ import annotations

import sys


def from_torch() -> tuple[int, int] | None:
    """(rank, world size) of torch.distributed, if it is initialised here. Never imports torch."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def resolve(
    rank: int | None,
    world_size: int | None,
    shard: int | None,
    num_shards: int | None,
) -> tuple[int | None, int | None]:
    """The rank and world size to give to libspdld: None is its word for "see the environment"."""
    if rank is not None and rank < 0:
        raise ValueError(f"rank is {rank}: it counts from 0")
    if world_size is not None and world_size < 1:
        raise ValueError(f"world_size is {world_size}: it is at least 1")
    if rank is not None and world_size is not None and rank >= world_size:
        raise ValueError(f"rank {rank} of world_size {world_size}: ranks are 0 to {world_size - 1}")
    if shard is not None and num_shards is not None and not -1 <= shard < num_shards != -1:
        raise ValueError(f"shard {shard} of num_shards {num_shards}: shards count from 0")
    if rank is not None and world_size is not None:
        return rank, world_size
    known = from_torch()
    if known is None:
        return rank, world_size
    return (known[0] if rank is None else rank), (known[1] if world_size is None else world_size)

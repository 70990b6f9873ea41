# SPDX-License-Identifier: Apache-2.0
"""All ranks of one job, and the account of what they were given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from integration.ranks import Rank

Key = tuple[int, int, int]  # epoch, step, shard


class Fleet:
    """The ranks of one job. `got` has every batch by its place: none may come twice."""

    def __init__(self, ranks: Iterable[Rank]) -> None:
        self.ranks = list(ranks)
        self.got: dict[Key, dict[str, Any]] = {}
        self._ended = [0] * len(self.ranks)  # epochs, by rank

    def round(self, shards: Iterable[int] | None = None) -> None:
        """One batch, or the end of an epoch, for each of the ranks."""
        chosen = list(range(len(self.ranks)) if shards is None else shards)
        for shard in chosen:
            self.ranks[shard].ask("next")
        for shard in chosen:
            batch = self.ranks[shard].answer()
            assert "error" not in batch, (shard, batch)
            if "end" in batch:
                self._ended[shard] += 1
                continue
            key = (batch["epoch"], batch["step"], shard)
            assert key not in self.got, f"{key} came twice"
            self.got[key] = batch

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def read_epochs(self, count: int) -> None:
        """Until each rank has seen the end of so many epochs in all."""
        while behind := [s for s, ended in enumerate(self._ended) if ended < count]:
            self.round(behind)

    def forget_from(self, epoch: int, step: int) -> None:
        """What comes from there on is to come again."""
        self.got = {key: batch for key, batch in self.got.items() if key[:2] < (epoch, step)}

    def indices(self) -> dict[Key, list[int]]:
        return {key: batch["indices"] for key, batch in self.got.items()}

    def flat(self, epoch: int) -> list[int]:
        """The items of an epoch in the global order: step by step, shard by shard."""
        places = sorted(key for key in self.got if key[0] == epoch)
        return [index for key in places for index in self.got[key]["indices"]]

    def check(self, expected: Callable[[Key], dict[str, Any]], keys: Iterable[Key]) -> None:
        """Just these places were given, and at each what an uninterrupted reader gets there."""
        assert sorted(self.got) == sorted(keys)
        for key, batch in self.got.items():
            want = expected(key)
            assert batch["indices"] == want["indices"], key
            assert batch["sum"] == want["sum"], key

    def close(self) -> None:
        for rank in self.ranks:
            rank.close()

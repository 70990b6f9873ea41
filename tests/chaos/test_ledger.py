# SPDX-License-Identifier: Apache-2.0
"""The judge of a chaos run finds what it is there to find."""

from __future__ import annotations

import dataclasses
import pathlib
import types

import numpy as np
import pytest
from chaos import images, ledger, rank, schedule
from chaos.ledger import Entry, Swap

ITEMS, EPOCHS, SHARDS, STEPS, ROWS = 12, 2, 2, 3, 2
FIRST = Swap((0, 0), 1, False)


def story() -> list[list[Entry]]:
    """What the ranks of a job without a flaw write down."""
    return [
        [
            Entry(epoch, step, tuple(range(first, first + ROWS)), 1, False)
            for epoch in range(EPOCHS)
            for step in range(STEPS)
            for first in [(step * SHARDS + shard) * ROWS]
        ]
        for shard in range(SHARDS)
    ]


def problems(shards: list[list[Entry]], swaps: list[Swap] | None = None) -> list[str]:
    return ledger.problems_of_job("job", shards, ITEMS, EPOCHS, [FIRST, *(swaps or [])])


def swapped(shards: list[list[Entry]], at: tuple[int, int]) -> list[list[Entry]]:
    return [
        [
            dataclasses.replace(entry, version=2, flipped=True) if entry.at >= at else entry
            for entry in entries
        ]
        for entries in shards
    ]


def test_a_story_without_a_flaw_has_no_problem() -> None:
    assert problems(story()) == []
    assert problems(swapped(story(), (1, 1)), [Swap((1, 1), 2, True)]) == []


def test_a_lost_batch_is_found_in_the_order_and_among_the_items() -> None:
    shards = story()
    del shards[1][1]
    found = "\n".join(problems(shards))
    assert "job shard 1 was handed (0, 2) after (0, 0)" in found
    assert "job epoch 0: 2 items lost: [6, 7]" in found
    assert "job epoch 0: the shards were handed [3, 2] steps" in found


def test_a_batch_that_came_twice_is_found() -> None:
    shards = story()
    shards[0].insert(2, shards[0][1])
    found = "\n".join(problems(shards))
    assert "job shard 0 was handed (0, 1) after (0, 1)" in found
    assert "2 items handed out twice: [4, 5]" in found


def test_rows_of_another_shard_are_found() -> None:
    shards = story()
    shards[0][0] = dataclasses.replace(shards[0][0], items=shards[1][0].items)
    found = "\n".join(problems(shards))
    assert "lost: [0, 1]" in found
    assert "twice: [2, 3]" in found


def test_an_item_that_there_is_not_is_found() -> None:
    shards = story()
    shards[0][0] = dataclasses.replace(shards[0][0], items=(0, ITEMS))
    assert any("unknown: [12]" in problem for problem in problems(shards))


def test_an_epoch_that_nobody_was_handed_is_found() -> None:
    shards = [[entry for entry in entries if entry.epoch == 0] for entries in story()]
    assert any("epoch 1: the shards were handed [0, 0]" in problem for problem in problems(shards))


def test_a_story_that_begins_late_is_found() -> None:
    assert ledger.problems_of_rank("rank", story()[0][1:]) == ["rank begins at (0, 1)"]


def test_shards_that_swap_at_different_steps_are_found() -> None:
    shards = [swapped(story(), (1, 0))[0], swapped(story(), (1, 1))[1]]
    found = ledger.problems_of_job("job", shards, ITEMS, EPOCHS, None)
    assert found == [
        "job (1, 0): shard 1 was handed version 1, another shard version 2",
    ]


def test_a_swap_at_another_step_than_was_said_is_found() -> None:
    shards = swapped(story(), (1, 1))
    assert any(
        "(1, 0): was made by version 1" in text
        for text in problems(shards, [Swap((1, 0), 2, True)])
    )
    assert any("(1, 1): was made by version 2" in text for text in problems(shards))


def test_a_version_that_makes_another_versions_pixels_is_found() -> None:
    shards = [[dataclasses.replace(e, version=2) for e in entries] for entries in story()]
    assert problems(shards, [Swap((0, 0), 2, True)]) != []


def test_a_rank_goes_on_behind_its_last_whole_line(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "ledger"
    assert ledger.resume(log) is None
    assert ledger.last(log) is None
    entries = story()[0][:2]
    lines = [ledger.to_line(entry, {"step": entry.step + 1}) for entry in entries]
    log.write_bytes(b"".join(lines) + lines[0][:-5])  # killed in the middle of the third
    assert ledger.read(log) == entries
    assert ledger.last(log) == entries[1]
    assert ledger.resume(log) == {"step": 2}
    assert log.read_bytes() == b"".join(lines)


def batch(items: list[int], pictures: list[np.ndarray]) -> types.SimpleNamespace:
    class Batch(types.SimpleNamespace):
        def __contains__(self, name: str) -> bool:
            return name == "image"

        def __getitem__(self, name: str) -> np.ndarray:
            assert name == "image"
            return np.stack(pictures)

    valid = np.ones(len(items), dtype=bool)
    return Batch(epoch=0, step=0, indices=np.array(items), valid=valid)


def test_a_rank_tells_versions_apart_by_their_pixels() -> None:
    plain, flipped = ([images.expected(item, flip) for item in (3, 300)] for flip in (False, True))
    assert rank.variant(batch([3, 300], plain)) is False
    assert rank.variant(batch([3, 300], flipped)) is True


def test_a_rank_refuses_pixels_of_another_item_and_of_two_versions() -> None:
    with pytest.raises(ValueError, match="its pixels are not item 4's"):
        rank.variant(batch([4], [images.expected(3)]))
    one_wrong = images.expected(4).copy()
    one_wrong[-1, -1, -1] ^= 1
    with pytest.raises(ValueError, match="its pixels are not item 4's"):
        rank.variant(batch([4], [one_wrong]))
    with pytest.raises(ValueError, match="rows of two versions"):
        rank.variant(batch([3, 4], [images.expected(3), images.expected(4, True)]))
    with pytest.raises(ValueError, match="it changed while it was held"):
        rank.recheck(batch([3], [images.expected(3, True)]), False)


def test_what_happens_follows_from_the_seed() -> None:
    counts = {schedule.Blow.KILL_DAEMON: 9, schedule.Blow.KILL_RANK: 5, schedule.Blow.SWAP: 3}
    one, same, other = (schedule.draw(seed, 10.0, counts, 2, 4) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert sum(event.blow is schedule.Blow.KILL_DAEMON for event in other) == 9
    assert [event.at_s for event in one] == sorted(event.at_s for event in one)

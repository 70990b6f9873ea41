# SPDX-License-Identifier: Apache-2.0
"""Rows that are not their item's are found, whatever they are collated to."""

from __future__ import annotations

import types
from typing import Any

import kinds
import numpy as np
import pytest

ITEMS = [0, 9, 300]


def batch_of(rows: list[Any], **fields: Any) -> Any:
    class Batch(dict):
        indices, valid = np.array(ITEMS), np.array([True, True, True])
        epoch, step = 2, 7

    return Batch(extra=rows, **fields)


def texts() -> list[memoryview]:
    return [memoryview(kinds.expected_bytes(item)) for item in ITEMS]


def padded() -> tuple[np.ndarray, np.ndarray]:
    rows = np.full((len(ITEMS), 1, 8, 8), kinds.FILLED, dtype=np.uint8)
    lengths = []
    for row, item in zip(rows, ITEMS, strict=True):
        want = kinds.expected_pixels(item)
        row[0, : want.shape[0], : want.shape[1]] = want
        lengths.append(list(want.shape))
    return rows, np.array(lengths)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_ragged_rows_are_compared_in_each_layout(layout: str) -> None:
    axis = 0 if layout == "NCHW" else 2
    rows = [np.expand_dims(kinds.expected_pixels(item), axis) for item in ITEMS]
    kinds.check(batch_of(rows))
    rows[1], rows[2] = rows[2], rows[1]
    with pytest.raises(ValueError, match="epoch 2 step 7 row 1: its extra is not item 9's"):
        kinds.check(batch_of(rows))


def test_one_wrong_byte_is_found() -> None:
    rows = texts()
    kinds.check(batch_of(rows))
    rows[2] = memoryview(bytes(rows[2])[:-1] + b"?")
    with pytest.raises(ValueError, match="row 2: its extra is not item 300's"):
        kinds.check(batch_of(rows))


def test_one_wrong_sample_is_found() -> None:
    rows = np.stack([kinds.expected_samples(item)[np.newaxis] for item in ITEMS])
    kinds.check(batch_of(list(rows)))
    rows[1, 0, -1] += 1 / (1 << 15)
    with pytest.raises(ValueError, match="row 1: its extra is not item 9's"):
        kinds.check(batch_of(list(rows)))


def clips(first: int) -> dict[str, list[Any]]:
    return {
        "extra": [kinds.expected_frames(item, first) for item in ITEMS],
        "sound": [kinds.expected_sound(item, first) for item in ITEMS],
        "text": [kinds.expected_bytes(item).decode() for item in ITEMS],
    }


def batch_with(fields: dict[str, list[Any]]) -> Any:
    batch = batch_of(fields["extra"])
    batch.update(fields)
    return batch


@pytest.mark.parametrize("first", [0, 3, 8])
def test_clips_may_begin_at_any_frame(first: int) -> None:
    kinds.check(batch_with(clips(first)))


def test_a_wrong_frame_of_a_clip_is_found() -> None:
    fields = clips(3)
    fields["extra"][1] = fields["extra"][1][[0, 2, 1]]
    with pytest.raises(ValueError, match="row 1: its extra is not item 9's"):
        kinds.check(batch_with(fields))


def test_sound_of_another_time_is_found() -> None:
    fields = {**clips(3), "sound": clips(4)["sound"]}
    with pytest.raises(ValueError, match="row 0: its sound is not that of its clip"):
        kinds.check(batch_with(fields))


def test_the_text_of_another_sample_is_found() -> None:
    fields = clips(3)
    fields["text"].reverse()
    with pytest.raises(ValueError, match="row 0: its text is not item 0's"):
        kinds.check(batch_with(fields))


def test_what_padded_rows_are_filled_up_with_is_compared() -> None:
    rows, lengths = padded()
    kinds.check(batch_of(rows, extra_length=lengths))
    rows[0, 0, -1, -1] ^= 1
    with pytest.raises(ValueError, match="row 0: its extra is not item 0's"):
        kinds.check(batch_of(rows, extra_length=lengths))


def test_lengths_of_padded_rows_are_compared() -> None:
    rows, lengths = padded()
    lengths[1][0] += 1
    with pytest.raises(ValueError, match="row 1: its extra is not item 9's"):
        kinds.check(batch_of(rows, extra_length=lengths))


def test_a_batch_without_the_field_says_nothing() -> None:
    kinds.check(types.MappingProxyType({}))


def test_kinds_are_found_by_name() -> None:
    assert [kinds.named(str(kind)) for kind in kinds.ALL] == kinds.ALL
    assert len(set(map(str, kinds.ALL))) == 18

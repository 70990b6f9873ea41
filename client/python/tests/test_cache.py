# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import spdld
from fake_daemon import expected_image


def test_batches_pass_through_first_and_are_repeated_then() -> None:
    cached = spdld.CacheLoader(list("abcdefgh"), num_caches=2, return_caches_after=4)
    assert "".join(islice(cached, 9)) == "abcdababa"
    assert "".join(islice(cached, 3)) == "aba"


def test_what_is_counted_goes_over_epochs() -> None:
    cached = spdld.CacheLoader(list("abc"), num_caches=1, return_caches_after=5)
    assert list(cached) == ["a", "b", "c"]
    assert list(islice(cached, 5)) == ["a", "b", "a", "a", "a"]


def test_an_epoch_that_ends_first_ends_the_loop() -> None:
    assert list(spdld.CacheLoader(list("abc"), 2, 100)) == ["a", "b", "c"]


def test_it_is_as_long_as_its_loader() -> None:
    assert len(spdld.CacheLoader(list("abc"), 2, 100)) == 3


def test_copies_of_a_batch_hold_no_lease_and_keep_their_contents(start, loader) -> None:
    start(steps=6, extra_fields=True)
    cached = spdld.CacheLoader(loader(prefetch=2), num_caches=3, return_caches_after=4)
    for turn, batch in enumerate(islice(cached, 10)):
        step = turn if turn < 4 else (turn - 4) % 3
        assert np.array_equal(batch["image"], expected_image(0, step, 4, (3, 96, 96)))
        assert batch["caption"][0] == b"a cat"
        assert batch["boxes"][2].shape == (2, 2)
        assert isinstance(batch, spdld.Batch) and batch.step == step
        assert batch.text("caption")[0] == "a cat"


def test_copies_of_tensors_are_the_callers(start, loader) -> None:
    torch = pytest.importorskip("torch")
    start(steps=6)
    for output in ("torch", ("image", "label")):
        cached = spdld.CacheLoader(loader(output=output, prefetch=2), 1, 2)
        kept = None
        for turn, batch in enumerate(islice(cached, 5)):
            label = batch["label"] if output == "torch" else batch[1]
            assert torch.is_tensor(label)
            if turn == 2:
                kept = label
            if turn > 2:
                assert label is kept
            del batch, label


@pytest.mark.parametrize(("caches", "after"), [(0, 5), (3, 2)])
def test_impossible_numbers_are_refused(caches, after) -> None:
    with pytest.raises(ValueError, match="num_caches"):
        spdld.CacheLoader([], caches, after)

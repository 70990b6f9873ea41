# SPDX-License-Identifier: Apache-2.0
"""A run in lockstep is worth what its judgement finds: each way to differ is one that it sees."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from chaos import operations
from chaos.agreement import Account, disagreement
from chaos.marked import ITEMS, Text
from chaos.operations import Kind

TEXTS = {
    1: Text(mark=0, batch=2, last="pad"),
    2: Text(mark=0, batch=2, last="pad", concurrency=3),
    3: Text(mark=5, batch=2, last="pad"),
}


def batch(items: list[int], **differing: Any) -> dict[str, Any]:
    plain = {"epoch": 1, "step": 4, "version": 1, "marks": [[0, 7]], "rows": 2, "items": items}
    return {**plain, **differing}


def end(epoch: int, step: int = 0) -> dict[str, Any]:
    return {"end": epoch, "state": {"epoch": epoch, "step": step}}


def test_shards_agree_on_the_step_and_have_no_row_in_common() -> None:
    assert disagreement([batch([1, 2]), batch([3, 4])], False, TEXTS) == ""
    assert "in common" in disagreement([batch([1, 2]), batch([2, 3])], False, TEXTS)


def test_replicas_have_the_same_rows() -> None:
    assert disagreement([batch([1, 2]), batch([1, 2])], True, TEXTS) == ""
    assert "other rows" in disagreement([batch([1, 2]), batch([2, 1])], True, TEXTS)


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({"epoch": 2}, "another epoch"),
        ({"step": 5}, "another step"),
        ({"rows": 3}, "another rows"),
        ({"version": 3}, "another version"),
        ({"version": 9}, "which nobody applied"),
        ({"marks": [[5, 7]]}, "rows of several makes"),
        ({"marks": [[0, 7], [0, 8]]}, "rows of several makes"),
    ],
)
@pytest.mark.parametrize("replicas", [False, True])
def test_each_thing_that_differs_is_found(
    other: dict[str, Any], found: str, replicas: bool
) -> None:
    items = [1, 2] if replicas else [3, 4]
    assert found in disagreement([batch([1, 2]), batch(items, **other)], replicas, TEXTS)
    assert found in disagreement([batch([1, 2], **other), batch(items)], replicas, TEXTS)


def test_the_last_rows_that_are_kept_need_not_be_as_many_for_all() -> None:
    kept = {1: Text(mark=0, batch=2, last="keep")}
    assert disagreement([batch([1, 2]), batch([3], rows=1)], False, kept) == ""


def test_rows_that_another_version_made_are_found_where_both_have_them() -> None:
    both = [batch([1, 2], version=3), batch([3, 4], version=3)]
    assert disagreement(both, False, TEXTS) == "not its version"


def test_what_was_tuned_is_the_same_version() -> None:
    assert disagreement([batch([1, 2]), batch([3, 4], version=2)], False, TEXTS) == ""


def test_an_end_comes_to_both_or_is_found() -> None:
    assert disagreement([end(2), end(2)], True, TEXTS) == ""
    assert disagreement([end(2), batch([1, 2])], True, TEXTS) == "another end"
    assert disagreement([end(2), end(3)], True, TEXTS) == "another end"


def test_an_error_of_either_is_found() -> None:
    error = {"error": "PipelineError", "message": "no"}
    assert disagreement([batch([1, 2]), error], True, TEXTS) == "an error"
    assert disagreement([error, error], True, TEXTS) == "an error"


def taken(account: Account, step: int, items: list[int], epoch: int = 0) -> str:
    return account.problem([batch(items, epoch=epoch, step=step)], True)


def test_a_step_that_is_not_the_next_is_found_unless_it_was_sought() -> None:
    account = Account("keep")
    assert taken(account, 0, [1]) == ""
    assert "0/1, which comes next" in taken(account, 2, [2])
    account.sought((0, 9))
    assert taken(account, 9, [1]) == ""
    assert account.at == (0, 10)
    assert "0/10, which comes next" in taken(account, 9, [3])


def test_an_item_that_comes_twice_or_never_is_found() -> None:
    account = Account("keep")
    assert taken(account, 0, [1, 2]) == ""
    assert "came before" in taken(account, 1, [2, 3])
    assert f"{ITEMS - 2} items did not come" in account.problem([end(1)], True)


def test_an_epoch_with_something_left_out_need_not_be_whole() -> None:
    account = Account("keep")
    account.skipped(0, 3)
    assert account.problem([end(1)], True) == ""


def test_steps_that_are_left_out_are_counted_and_no_more_than_those() -> None:
    account = Account("keep")
    account.skipped(0, 3)
    assert taken(account, 0, [1]) == ""
    assert "0/1, which comes next" in taken(copy.deepcopy(account), 5, [2])
    assert taken(account, 4, [2]) == ""


def test_an_epoch_that_drops_its_end_misses_less_than_a_step() -> None:
    account = Account("drop")
    assert taken(account, 0, list(range(ITEMS - 4))) == ""
    assert account.problem([end(1)], True) == ""
    assert taken(account, 0, list(range(ITEMS - 5)), epoch=1) == ""
    assert "5 items did not come in epoch 1" in account.problem([end(2)], True)


def test_more_ranks_at_an_epochs_end_may_drop_more_of_it() -> None:
    account = Account("drop")
    for step in range((ITEMS - 10) // 2):
        of_two = [batch([2 * step + rank], epoch=0, step=step) for rank in range(2)]
        assert account.problem(of_two, False) == ""
    before = copy.deepcopy(account)
    assert "10 items did not come" in before.problem([end(1), end(1)], False)
    assert account.problem([end(1), end(1), end(1)], False) == ""


def test_an_epoch_ends_where_the_next_one_begins_or_where_a_seek_leads() -> None:
    account = Account("keep")
    assert taken(account, 0, list(range(ITEMS))) == ""
    assert "behind the end of an epoch is (5, 0)" in account.problem([end(5)], True)
    account = Account("keep")
    account.sought((5, 3))
    assert taken(account, 0, [1]) == ""
    assert account.problem([end(5, 3)], True) == ""
    assert taken(account, 3, [2], epoch=5) == ""


def test_a_seek_to_an_epochs_end_leads_behind_what_the_next_one_leaves_out() -> None:
    account = Account("keep")
    account.sought((7, 12))
    account.skipped(8, 3)
    assert taken(copy.deepcopy(account), 0, [1], epoch=8) == ""
    assert "0/0, which comes next" in taken(copy.deepcopy(account), 4, [1], epoch=8)
    assert taken(account, 3, [1], epoch=8) == ""


def test_where_the_loops_go_by_themselves_comes_next() -> None:
    account = Account("keep")
    assert taken(account, 0, [1]) == ""
    account.skip_steps(3)
    assert taken(account, 4, [2]) == ""
    account.set_epoch(0)
    assert taken(account, 0, [1]) == ""
    assert "0/1, which comes next" in taken(account, 2, [3])


def test_a_checkpoint_has_the_rest_of_its_epoch_come_again() -> None:
    account = Account("keep")
    assert taken(account, 0, [1]) == ""
    past = copy.deepcopy(account)
    assert taken(account, 1, [2]) == ""
    account.back_to(past, [(0, 9)])
    assert "came before" in taken(copy.deepcopy(account), 1, [1])
    assert taken(copy.deepcopy(account), 9, [1]) == "", "along with the seek once more"
    assert taken(account, 1, [2]) == ""


def test_the_seed_says_what_is_done_and_a_longer_run_begins_as_a_shorter_one() -> None:
    long = operations.draw(3, 2000)
    assert operations.draw(3, 100) == [one for one in long if one.before < 100]
    # These are drawn for ranks that are apart alone.
    assert {one.kind for one in long} == set(Kind) - {Kind.RESIZE, Kind.REPLACE_RANKS}
    assert operations.draw(4, 100) != operations.draw(3, 100)
    assert len({operations.draw_world(seed) for seed in range(200)}) == 2 * 3 * 3 * 3

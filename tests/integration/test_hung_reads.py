# SPDX-License-Identifier: Apache-2.0
"""Storage that does not answer: whom that stops, what they are told, and that nothing is lost."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from integration.hung_mount import HungMount
from integration.ranks import Rank, indices

ITEMS, BATCH = 24, 4
IO_THREADS = 4
# Longer than the time between two of the daemon's words.
TIMEOUT_S = 5.0


@pytest.fixture
def dataset(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=ITEMS)


@pytest.fixture
def mount(
    make_daemon: Callable[..., Any], dataset: Any, tmp_path: pathlib.Path
) -> Iterator[Callable[[str], HungMount]]:
    """mount(name): the dataset, at tmp_path/name; ended before any daemon is."""
    made: list[HungMount] = []

    def make(name: str) -> HungMount:
        (tmp_path / name).mkdir()
        try:
            made.append(HungMount(dataset.root, tmp_path / name))
        except OSError as refused:
            pytest.skip(f"this machine does not let tests mount: {refused}")
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def sick(mount: Callable[[str], HungMount]) -> HungMount:
    return mount("sick")


@pytest.fixture
def serve(
    make_daemon: Callable[..., Any],
    write_large_pipeline: Callable[..., pathlib.Path],
    dataset: Any,
    tmp_path: pathlib.Path,
) -> Callable[..., Any]:
    """serve(name, …, io_threads=…, **sections): a daemon with a pipeline of each mount's name."""

    def write(name: str, **sections: Any) -> pathlib.Path:
        files = {"root": str(tmp_path / name), "pattern": "**/*.jpg", "label": "parent_dir"}
        return write_large_pipeline(
            dataset,
            name=name,
            source={"files": files},
            **{"batch": {"size": BATCH, "last": "keep"}, **sections},
        )

    def start(*names: str, io_threads: int = IO_THREADS, **sections: Any) -> Any:
        return make_daemon(
            pipelines=[write(name, **sections) for name in names],
            settings={"executor": {"cpu_threads": 2, "io_threads": io_threads}},
        )

    return start


def test_a_mount_that_hangs_stops_its_own_job_alone(
    mount: Callable[[str], HungMount],
    sick: HungMount,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    mount("well")
    daemon = serve("sick", "well")
    order = [batch["indices"] for batch in start_rank(daemon, "well").rest_of_epoch()]
    stuck, other = start_rank(daemon, "sick", job="stuck"), start_rank(daemon, "well", job="other")
    sick.hang()
    stuck.ask("next")
    wait_until(lambda: sick.waiting == IO_THREADS // 2, "the hung mount's share of the threads")
    for epoch in range(3):
        batches = other.rest_of_epoch()
        assert {batch["epoch"] for batch in batches} == {epoch}
        if epoch == 0:
            assert [batch["indices"] for batch in batches] == order
        assert sorted(indices(batches)) == list(range(ITEMS))
    # However much of it is wanted, it gets no more of them.
    assert sick.waiting == IO_THREADS // 2
    assert not stuck.answered()
    sick.let_go()
    batches = [stuck.answer(), *stuck.rest_of_epoch()]
    assert [batch["indices"] for batch in batches] == order


def test_a_rank_is_told_which_item_does_not_come_and_goes_on_when_it_does(
    sick: HungMount,
    dataset: Any,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
) -> None:
    daemon = serve("sick")
    order = [batch["indices"] for batch in start_rank(daemon, "sick").rest_of_epoch()]
    rank = start_rank(daemon, "sick", job="run", timeout=TIMEOUT_S)
    sick.hang()
    for _ in range(2):  # asked again, it says the same again
        refused = rank.do("next")
        assert refused["error"] == "TimeoutError", refused
        said = refused["message"]
        assert "no headway for 5000 ms while waiting for step 0 of epoch 0 of 'sick'" in said
        named = [
            item
            for item in order[0]
            if f"item {item} ({dataset.files[item].relative_to(dataset.root)}) is being read for "
            in said
        ]
        assert len(named) == 1, said
        assert "see that its storage answers" in said
        assert sick.waiting == IO_THREADS // 2
    sick.let_go()
    assert [batch["indices"] for batch in rank.rest_of_epoch()] == order
    assert rank.do("stats")["reconnects"] == 0


def test_a_shard_that_hangs_is_told_so_while_another_one_goes_on(
    sick: HungMount,
    dataset: Any,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
) -> None:
    half = ITEMS // 2
    # The batches that are made ahead want the file, too, and leave the other shard some threads.
    daemon = serve("sick", io_threads=16, shuffle="none", batch={"size": half, "last": "keep"})
    other, stuck = (
        start_rank(daemon, "sick", job="run", rank=rank, world_size=2, timeout=TIMEOUT_S)
        for rank in range(2)
    )
    sick.hang(only=dataset.files[-1].name)
    stuck.ask("next")
    epochs = 0
    while not stuck.answered():
        assert indices(other.rest_of_epoch()) == list(range(half))
        epochs += 1
    assert epochs > 1
    refused = stuck.answer()
    assert refused["error"] == "TimeoutError", refused
    name = dataset.files[-1].relative_to(dataset.root)
    assert f"item {ITEMS - 1} ({name}) is being read for " in refused["message"]
    sick.let_go()
    assert indices(stuck.rest_of_epoch()) == list(range(half, ITEMS))


def test_a_batch_that_takes_longer_than_the_timeout_is_waited_for_while_it_comes_on(
    sick: HungMount,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    daemon = serve("sick", batch={"size": 12, "last": "keep"})
    rank = start_rank(daemon, "sick", timeout=TIMEOUT_S)
    sick.hang()
    rank.ask("next")
    # Two hang at a time, each once: more than twice the timeout in all.
    for _ in range(8):
        wait_until(lambda: sick.waiting == IO_THREADS // 2, "the next reads")
        assert not rank.answered(TIMEOUT_S / 4), rank.answer()
        sick.let_one_go()
    assert not rank.answered()
    sick.let_go()
    assert sorted(rank.answer()["indices"] + indices(rank.rest_of_epoch())) == list(range(ITEMS))

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
def make_mount(
    make_daemon: Callable[..., Any], tmp_path: pathlib.Path
) -> Iterator[Callable[..., HungMount]]:
    """make_mount(name, dataset): mounted at tmp_path/name; ended before any daemon is."""
    made: list[HungMount] = []

    def make(name: str, data: Any) -> HungMount:
        (tmp_path / name).mkdir()
        try:
            made.append(HungMount(data.root, tmp_path / name))
        except OSError as refused:
            pytest.skip(f"this machine does not let tests mount: {refused}")
        return made[-1]

    yield make
    for mount in made:
        mount.close()


@pytest.fixture
def pipeline(
    tmp_path: pathlib.Path,
    make_dataset: Callable[..., Any],
    write_large_pipeline: Callable[..., pathlib.Path],
) -> Callable[..., pathlib.Path]:
    """pipeline(name, **sections): of what is mounted at tmp_path/name."""

    def write(name: str, **sections: Any) -> pathlib.Path:
        files = {"root": str(tmp_path / name), "pattern": "**/*.jpg", "label": "parent_dir"}
        return write_large_pipeline(
            make_dataset(count=ITEMS),
            name=name,
            source={"files": files},
            **{"batch": {"size": BATCH, "last": "keep"}, **sections},
        )

    return write


@pytest.fixture
def start(make_daemon: Callable[..., Any]) -> Callable[..., Any]:
    """start(pipeline, …, io_threads=…): a daemon that serves these."""

    def daemon(*pipelines: pathlib.Path, io_threads: int = IO_THREADS) -> Any:
        return make_daemon(
            pipelines=list(pipelines),
            settings={"executor": {"cpu_threads": 2, "io_threads": io_threads}},
        )

    return daemon


def test_a_mount_that_hangs_stops_its_own_job_alone(
    make_mount: Callable[..., HungMount],
    make_dataset: Callable[..., Any],
    pipeline: Callable[..., pathlib.Path],
    start: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    sick = make_mount("sick", make_dataset(count=ITEMS))
    make_mount("well", make_dataset(count=ITEMS))
    daemon = start(pipeline("sick"), pipeline("well"))
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
    make_mount: Callable[..., HungMount],
    make_dataset: Callable[..., Any],
    pipeline: Callable[..., pathlib.Path],
    start: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    data = make_dataset(count=ITEMS)
    mount = make_mount("sick", data)
    daemon = start(pipeline("sick"))
    order = [batch["indices"] for batch in start_rank(daemon, "sick").rest_of_epoch()]
    rank = start_rank(daemon, "sick", job="run", timeout=TIMEOUT_S)
    mount.hang()
    for _ in range(2):  # asked again, it says the same again
        refused = rank.do("next")
        assert refused["error"] == "TimeoutError", refused
        assert (
            "no headway for 5000 ms while waiting for step 0 of epoch 0 of 'sick'"
            in (refused["message"])
        )
        named = [
            item
            for item in order[0]
            if f"item {item} ({data.files[item].relative_to(data.root)}) is being read for "
            in refused["message"]
        ]
        assert len(named) == 1, refused["message"]
        assert "see that its storage answers" in refused["message"]
        assert mount.waiting == IO_THREADS // 2
    mount.let_go()
    assert [batch["indices"] for batch in rank.rest_of_epoch()] == order
    assert rank.do("stats")["reconnects"] == 0


def test_a_shard_that_hangs_is_told_so_while_another_one_goes_on(
    make_mount: Callable[..., HungMount],
    make_dataset: Callable[..., Any],
    pipeline: Callable[..., pathlib.Path],
    start: Callable[..., Any],
    start_rank: Callable[..., Rank],
) -> None:
    data = make_dataset(count=ITEMS)
    mount = make_mount("sick", data)
    half = ITEMS // 2
    # The batches that are made ahead want the file, too, and leave the other shard some threads.
    daemon = start(
        pipeline("sick", shuffle="none", batch={"size": half, "last": "keep"}), io_threads=16
    )
    other, stuck = (
        start_rank(daemon, "sick", job="run", rank=rank, world_size=2, timeout=TIMEOUT_S)
        for rank in range(2)
    )
    mount.hang(only=data.files[-1].name)
    stuck.ask("next")
    epochs = 0
    while not stuck.answered():
        assert indices(other.rest_of_epoch()) == list(range(half))
        epochs += 1
    assert epochs > 1
    refused = stuck.answer()
    assert refused["error"] == "TimeoutError", refused
    name = data.files[-1].relative_to(data.root)
    assert f"item {ITEMS - 1} ({name}) is being read for " in refused["message"]
    mount.let_go()
    assert indices(stuck.rest_of_epoch()) == list(range(half, ITEMS))


def test_a_batch_that_takes_longer_than_the_timeout_is_waited_for_while_it_comes_on(
    make_mount: Callable[..., HungMount],
    make_dataset: Callable[..., Any],
    pipeline: Callable[..., pathlib.Path],
    start: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    mount = make_mount("slow", make_dataset(count=ITEMS))
    daemon = start(pipeline("slow", batch={"size": 12, "last": "keep"}))
    rank = start_rank(daemon, "slow", timeout=TIMEOUT_S)
    mount.hang()
    rank.ask("next")
    # Two hang at a time, each once: more than twice the timeout in all.
    for _ in range(8):
        wait_until(lambda: mount.waiting == IO_THREADS // 2, "the next reads")
        assert not rank.answered(TIMEOUT_S / 4), rank.answer()
        mount.let_one_go()
    assert not rank.answered()
    mount.let_go()
    assert sorted(rank.answer()["indices"] + indices(rank.rest_of_epoch())) == list(range(ITEMS))

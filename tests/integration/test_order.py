# SPDX-License-Identifier: Apache-2.0
"""Which rank gets which item when, and what bytes, is a function of seed and data alone."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import on_gpu
import pytest
from PIL import Image

ITEMS, BATCH, EPOCHS = 44, 4, 2
RANDOM = [
    "fetch",
    "decode_image",
    {"random_resized_crop": {"size": [24, 24]}},
    {"random_horizontal_flip": {"p": 0.5}},
]


class Row(NamedTuple):
    epoch: int
    step: int
    shard: int
    row: int
    index: int
    digest: str


def rows_of(text: str) -> list[Row]:
    parts = [line.split() for line in text.splitlines()]
    return [Row(*map(int, part[:5]), part[5]) for part in parts]


def digests(rows: Iterable[Row]) -> dict[tuple[int, int], str]:
    """By epoch and item; an item that comes twice in an epoch fails."""
    found: dict[tuple[int, int], str] = {}
    for row in rows:
        key = (row.epoch, row.index)
        assert key not in found, f"item {row.index} comes twice in epoch {row.epoch}"
        found[key] = row.digest
    return found


def consume(daemon: Any, rank: int, world_size: int, *more: str) -> list[Row]:
    asked = ("images", "--digest", "--per-row", "--rank", str(rank), "--world-size")
    done = daemon.ctl(*on_gpu.consume(*asked, str(world_size), *more))
    return rows_of(done.stdout)


def consume_all(daemon: Any, world_size: int, *more: str) -> list[Row]:
    return [row for rank in range(world_size) for row in consume(daemon, rank, world_size, *more)]


@pytest.fixture
def pipeline(make_dataset: Callable[..., Any], write_pipeline: Callable[..., Any]) -> pathlib.Path:
    return write_pipeline(
        make_dataset(count=ITEMS, texture=True),
        stages=RANDOM,
        batch={"size": BATCH, "last": "keep", "layout": "NCHW"},
    )


def test_bytes_depend_on_neither_shards_nor_threads_nor_restarts(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path
) -> None:
    everything = {(epoch, index) for epoch in range(EPOCHS) for index in range(ITEMS)}
    expected = None
    for threads in (1, 4):
        daemon = make_daemon(
            pipelines=[pipeline], settings={"executor": {"cpu_threads": threads, "io_threads": 2}}
        )
        for _ in ("before", "after"):
            for world_size in (1, 2, 3):
                found = digests(consume_all(daemon, world_size, "--epochs", str(EPOCHS)))
                assert set(found) == everything
                expected = expected or found
                assert found == expected
            daemon.restart()
        daemon.stop()
    assert expected is not None
    assert len(set(expected.values())) == len(everything), "crops differ from epoch to epoch"


def test_the_order_of_rows_does_not_depend_on_the_number_of_shards(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path
) -> None:
    daemon = make_daemon(pipelines=[pipeline])
    alone = [row.index for row in consume(daemon, 0, 1)]
    together = consume_all(daemon, 2)
    assert [row.index for row in sorted(together)] == alone


def test_each_shard_has_as_many_steps_as_the_others(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., Any],
) -> None:
    data = make_dataset(count=ITEMS, texture=True)
    daemon = make_daemon(
        pipelines=[
            write_pipeline(data, name="images", batch={"size": BATCH, "last": "drop"}),
        ]
    )
    shards = [consume(daemon, rank, 3) for rank in range(3)]
    assert [{row.step for row in shard} for shard in shards] == [{0, 1, 2}] * 3
    assert (
        len(digests(row for shard in shards for row in shard)) == ITEMS // (3 * BATCH) * 3 * BATCH
    )


def test_a_padded_tail_repeats_rows_and_says_that_they_are_not_valid(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    start_rank: Callable[..., Any],
) -> None:
    data = make_dataset(count=10)
    daemon = make_daemon(pipelines=[write_pipeline(data, batch={"size": 4, "last": "pad"})])
    ranks = [start_rank(daemon, job="pad", rank=rank, world_size=2) for rank in range(2)]
    batches = [batch for rank in ranks for batch in rank.rest_of_epoch()]
    assert [batch["step"] for batch in batches] == [0, 1, 0, 1]
    assert all(len(batch["indices"]) == 4 for batch in batches)
    valid = [
        index
        for batch in batches
        for index, is_valid in zip(batch["indices"], batch["valid"], strict=True)
        if is_valid
    ]
    assert sorted(valid) == list(range(10))


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_a_cursor_goes_on_under_another_world_and_batch_size(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path, ends: str
) -> None:
    daemon = make_daemon(pipelines=[pipeline])
    whole = digests(consume(daemon, 0, 1))
    begun, cursors = [], []
    for rank in range(2):
        asked = ("images", "--digest", "--per-row", "--batches", "3", "--print-cursor")
        place = ("--rank", str(rank), "--world-size", "2")
        done = daemon.ctl(*on_gpu.consume(*asked, *place))
        begun += rows_of(done.stdout)
        cursors.append(done.stderr.strip())
    places = {tuple(cursor.split(":")[:5]) for cursor in cursors}
    assert len(places) == 1, "a place is the job's, not the rank's"
    getattr(daemon, ends)()
    daemon.start()
    rest = consume_all(daemon, 3, "--batch-size", "5", "--cursor", cursors[0])
    assert digests(begun + rest) == whole
    assert {row.step for row in begun} == {0, 1, 2}
    assert min(row.step for row in rest) == 3, "steps count on"


def save(daemon: Any) -> str:
    """A cursor in mid-epoch."""
    options = ("images", "--digest", "--batches", "2", "--print-cursor")
    return daemon.ctl(*on_gpu.consume(*options)).stderr.strip()


def resume(daemon: Any, cursor: str) -> subprocess.CompletedProcess[str]:
    return daemon.ctl(*on_gpu.consume("images", "--digest", "--cursor", cursor), check=False)


@pytest.mark.files_only
def test_a_cursor_is_refused_once_an_apply_has_taken_more_files(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., Any],
) -> None:
    data = make_dataset(count=24, name="grows")
    pipeline = write_pipeline(data)
    daemon = make_daemon(pipelines=[pipeline])
    added = data.root / "class_0" / "new.jpg"
    cursor = save(daemon)
    Image.new("RGB", (64, 48)).save(added)
    daemon.restart()
    assert resume(daemon, cursor).returncode == 0, "what was applied is what is read"
    daemon.ctl("apply", "-f", pipeline)
    done = resume(daemon, cursor)
    assert done.returncode == 1
    assert "the dataset had 24 items, now it has 25" in done.stderr
    assert "restore what changed, or begin anew" in done.stderr
    added.unlink()
    daemon.ctl("apply", "-f", pipeline)
    assert resume(daemon, cursor).returncode == 0


@pytest.mark.files_only
def test_a_pipeline_that_is_applied_again_sees_a_file_that_was_added(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., Any],
) -> None:
    data = make_dataset(count=24, name="applied-again")
    pipeline = write_pipeline(data)
    daemon = make_daemon(pipelines=[pipeline])
    cursor = save(daemon)
    Image.new("RGB", (64, 48)).save(data.root / "class_1" / "new.jpg")
    assert resume(daemon, cursor).returncode == 0, "what was listed is what is read"
    applied = daemon.ctl_json("apply", "-f", pipeline)
    assert (applied["version"], applied["items"]) == (2, 25)
    done = resume(daemon, cursor)
    assert done.returncode == 1
    assert "the dataset had 24 items, now it has 25" in done.stderr


@pytest.mark.files_only
def test_a_cursor_is_refused_once_a_file_has_another_name(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., Any],
) -> None:
    data = make_dataset(count=24, name="renamed")
    pipeline = write_pipeline(data)
    daemon = make_daemon(pipelines=[pipeline])
    first = data.files[0]
    cursor = save(daemon)
    first.rename(first.with_name("other.jpg"))
    daemon.ctl("apply", "-f", pipeline)
    done = resume(daemon, cursor)
    assert done.returncode == 1
    assert "still has 24 items, but their names are not the same" in done.stderr


def test_a_cursor_is_refused_once_the_shuffle_is_another(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], dataset: Any
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(dataset)])
    cursor = save(daemon)
    write_pipeline(dataset, shuffle="none")
    daemon.restart()
    done = resume(daemon, cursor)
    assert done.returncode == 1
    assert "the shuffle was another one, now it is none" in done.stderr


def test_a_cursor_survives_a_change_of_transforms(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], dataset: Any
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(dataset)])
    cursor = save(daemon)
    write_pipeline(dataset, stages=["fetch", "decode_image", {"resize": {"size": [16, 16]}}])
    daemon.restart()
    done = resume(daemon, cursor)
    assert done.returncode == 0, done.stderr


def test_a_text_that_is_no_cursor_is_wrong_usage(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], dataset: Any
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(dataset)])
    done = daemon.ctl(*on_gpu.consume("images", "--cursor", "yesterday"), check=False)
    assert done.returncode == 2
    assert "'yesterday' is no cursor" in done.stderr


@pytest.mark.parametrize("end", [":", ":1", ":1:2", ":1:2:x", ":1:2:-3", ":1:2:3:4"])
def test_a_cursor_ends_with_run_branch_and_turn_or_none_of_them(daemon: Any, end: str) -> None:
    cursor = "6fd4258c56fbe24dd5623e16a6d0ddc8-4:42:0:0:0" + end
    done = daemon.ctl(*on_gpu.consume("images", "--cursor", cursor), check=False)
    assert f"'{cursor}' is no cursor" in done.stderr

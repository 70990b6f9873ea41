# SPDX-License-Identifier: Apache-2.0
"""Items that stand several times in an epoch: together in a batch or apart, each row with its part."""

from __future__ import annotations

import hashlib
import itertools
import pathlib
import wave
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import spdld
from integration.ranks import Rank, group, indices

ITEMS, ROWS, BATCH = 44, 3, 6
STAGES = ["fetch", "decode_image", {"random_resized_crop": {"size": [24, 24]}}]
TOGETHER, APART = {"rows": ROWS}, {"rows": ROWS, "adjacent": False}
Write = Callable[..., pathlib.Path]
StartRank = Callable[..., Rank]


class Row(NamedTuple):
    index: int
    part: int
    valid: bool
    digest: str


@pytest.fixture
def write(make_dataset: Callable[..., Any], write_version: Callable[..., Any]) -> Write:
    """write(repeat=…, data=…): a pipeline of random crops."""

    def make(repeat: Any = TOGETHER, data: Any = None, **sections: Any) -> pathlib.Path:
        data = data or make_dataset(count=ITEMS, texture=True)
        batch = {"size": BATCH, "last": "keep", "layout": "NCHW"}
        sections = {"stages": STAGES, "batch": batch, **sections}
        return write_version(data, **{"repeat": repeat, **sections})

    return make


@pytest.fixture
def open_loader() -> Iterator[Callable[..., spdld.Loader]]:
    made: list[spdld.Loader] = []

    def make(daemon: Any, **options: Any) -> spdld.Loader:
        made.append(spdld.Loader("images", address=daemon.address, **options))
        return made[-1]

    yield make
    for loader in made:
        loader.close()


def rows_of(batch: Any) -> list[Row]:
    fields = (batch.indices, batch["part"], batch.valid, batch["image"])
    return [
        Row(int(index), int(part), bool(valid), hashlib.sha256(image.tobytes()).hexdigest())
        for index, part, valid, image in zip(*fields, strict=True)
    ]


def every_row() -> list[tuple[int, int]]:
    return [(item, part) for item in range(ITEMS) for part in range(ROWS)]


def named(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row.index, row.part) for row in rows if row.valid]


@pytest.mark.parametrize("repeat", [TOGETHER, APART], ids=["together", "apart"])
def test_a_loader_goes_on_in_mid_epoch_with_the_same_rows(
    make_daemon: Callable[..., Any],
    write: Write,
    open_loader: Callable[..., spdld.Loader],
    repeat: dict[str, Any],
) -> None:
    daemon = make_daemon(pipelines=[write(repeat)])
    whole = open_loader(daemon, job="whole")
    batches = [rows_of(batch) for batch in whole]
    rows = [row for batch in batches for row in batch]
    assert (whole.num_items, len(whole)) == (ITEMS, len(batches))
    assert sorted(named(rows)) == every_row()
    assert len({row.digest for row in rows}) == ITEMS * ROWS, "each row has a crop of its own"
    if repeat is TOGETHER:
        for batch in batches:
            for first in range(0, len(batch), ROWS):
                of_item = batch[first : first + ROWS]
                assert [row.part for row in of_item] == list(range(ROWS))
                assert len({row.index for row in of_item}) == 1

    stopped = open_loader(daemon, job="stopped")
    epoch = iter(stopped)
    taken = [rows_of(next(epoch)) for _ in range(4)]
    state = stopped.state_dict()
    daemon.restart()
    resumed = open_loader(daemon, job="resumed")
    resumed.load_state_dict(state)
    assert taken + [rows_of(batch) for batch in resumed] == batches


def test_ranks_share_the_rows_out_and_leave_those_of_an_item_together(
    make_daemon: Callable[..., Any], write: Write, start_rank: StartRank
) -> None:
    daemon = make_daemon(pipelines=[write()])
    whole = start_rank(daemon, job="whole")
    order = indices(whole.rest_of_epoch())
    assert order[::ROWS] == order[1::ROWS] == order[2::ROWS]
    ranks = group(start_rank, daemon, 3, prefetch=2)
    given = [rank.take(1) for rank in ranks]
    daemon.ctl("job", "resize", "run", "--shards", "2")
    leaver = ranks.pop()
    while "error" not in (batch := leaver.do("next")):
        given.append([batch])
    daemon.kill()
    for rank in ranks:
        rank.ask("next")
    daemon.start()
    given += [[rank.answer()] for rank in ranks]
    given += [rank.rest_of_epoch() for rank in ranks]
    items: list[int] = []
    for batch in (batch for batches in given for batch in batches):
        for first in range(0, len(batch["indices"]), ROWS):
            of_item = batch["indices"][first : first + ROWS]
            assert of_item == of_item[:1] * ROWS
            items += of_item[:1] if batch["valid"][first] else []
    assert sorted(items) == list(range(ITEMS))


def test_rows_of_a_bad_file_keep_their_part_and_count_as_one_item(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write: Write,
    open_loader: Callable[..., spdld.Loader],
) -> None:
    data = make_dataset(count=ITEMS, texture=True, name="repeat-bad")
    data.files[5].write_text("no image")
    budget = {"decode": "replace", "budget": {"fraction": 0, "min": 1}}
    daemon = make_daemon(pipelines=[write(data=data, on_error=budget)])
    rows = [row for batch in open_loader(daemon, job="run") for row in rows_of(batch)]
    replaced = [(at, row) for at, row in enumerate(rows) if not row.valid]
    first = replaced[0][0]
    assert [(at, row.part) for at, row in replaced] == [
        (first + part, part) for part in range(ROWS)
    ]
    assert len({row.index for _, row in replaced}) == 1 and replaced[0][1].index != 5
    assert sorted(named(rows)) == [row for row in every_row() if row[0] != 5]
    failures = [f for f in daemon.ctl_json("get", "failures") if f["epoch"] == 0]
    assert {(failure["item"], failure["uri"]) for failure in failures} == {
        (5, str(data.files[5].relative_to(data.root)))
    }


def test_a_batch_size_that_parts_the_rows_of_an_item_is_refused(
    make_daemon: Callable[..., Any], write: Write, open_loader: Callable[..., spdld.Loader]
) -> None:
    daemon = make_daemon(pipelines=[write()])
    why = "batches of 8 rows would part some: take a multiple of 3, such as 6, or write"
    loader = open_loader(daemon, job="run", batch_size=8)
    with pytest.raises(spdld.PipelineError, match=rf"\.yaml:\d+:\d+: repeat: .*{why}"):
        len(loader)
    batch = {"size": 8, "last": "keep", "layout": "NCHW"}
    refused = daemon.ctl("apply", "-f", write(batch=batch), check=False)
    assert why in refused.stderr
    assert len(open_loader(daemon, job="other", batch_size=9)) == -(-ITEMS * ROWS // 9)


def test_another_repeat_begins_with_an_epoch(
    make_daemon: Callable[..., Any], write: Write, open_loader: Callable[..., spdld.Loader]
) -> None:
    daemon = make_daemon(pipelines=[write()])
    loader = open_loader(daemon, job="run")
    epoch = iter(loader)
    rows = rows_of(next(epoch))
    state = loader.state_dict()
    file = write(APART)
    refused = daemon.ctl("apply", "-f", file, "--job", "run", "--at", "now", check=False)
    assert "at an epoch's start only" in refused.stderr
    daemon.ctl("apply", "-f", file, "--job", "run", "--at", "next-epoch")
    rows += [row for batch in epoch for row in rows_of(batch)]
    assert sorted(named(rows)) == every_row()
    rows = [row for batch in loader for row in rows_of(batch)]
    assert sorted(named(rows)) == every_row()
    assert [row.part for row in rows] != [at % ROWS for at in range(len(rows))]
    other = open_loader(daemon, job="other")
    other.load_state_dict(state)
    with pytest.raises(spdld.PipelineError, match=r"global with repeat \{rows: 3, adjacent: false"):
        next(iter(other))


def test_a_change_and_a_start_behind_as_many_rows_as_there_are_items_lose_none(
    make_daemon: Callable[..., Any], write: Write, open_loader: Callable[..., spdld.Loader]
) -> None:
    daemon = make_daemon(pipelines=[write()])
    loader = open_loader(daemon, job="run", prefetch=2)
    epoch = iter(loader)
    behind = len(loader) - 2
    rows = [row for batch in itertools.islice(epoch, behind) for row in rows_of(batch)]
    state = loader.state_dict()
    other = write(stages=[*STAGES, {"random_horizontal_flip": {"p": 1.0}}])
    daemon.ctl("apply", "-f", other, "--job", "run", "--at", "now")
    rows += [row for batch in epoch for row in rows_of(batch)]
    assert sorted(named(rows)) == every_row()
    later = open_loader(daemon, job="later")
    later.load_state_dict(state)
    assert len(list(later)) == len(loader) - behind


def test_each_row_has_a_window_of_its_own(
    make_daemon: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    with wave.open(str(tmp_path / "ramp.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.arange(32000, dtype="<i2").tobytes())
    path = tmp_path / "sounds.yaml"
    path.write_text(
        'pipeline: sounds\nsource: {files: {root: ., pattern: "*.wav", field: audio}, '
        "windows: {seconds: 0.1, sampling: random}}\nrepeat: {rows: 8}\n"
        "stages: [fetch, decode_audio]\nbatch: {size: 8}\n"
    )
    with spdld.Loader(path, address=make_daemon().address) as loader:
        first = [[float(row.flat[0]) for row in batch["audio"]] for _ in "ab" for batch in loader]
    assert [len(set(epoch)) for epoch in first] == [8, 8]
    assert first[0][0] != first[1][0], "another epoch has other windows"


def test_explain_tells_the_rows_of_items(make_daemon: Callable[..., Any], write: Write) -> None:
    file = write()
    daemon = make_daemon(pipelines=[file])
    order = daemon.ctl_json("explain", "-f", file)["order"]
    assert (int(order["repeat"]), order["adjacent"]) == (ROWS, True)
    assert f"{ITEMS} items of {ROWS} rows each" in daemon.ctl("explain", "-f", file).stdout

# SPDX-License-Identifier: Apache-2.0
"""'spdlctl show' makes the rows of any step of a job just as its ranks were given them."""

from __future__ import annotations

import collections
import fcntl
import itertools
import pathlib
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
from PIL import Image

ITEMS, BATCH = 960, 2
BAD = range(5, ITEMS, 40)
PIPE_BYTES = 4096  # the least that the kernel gives

Key = tuple[int, int, int]  # epoch, step, shard
Rows = list[tuple[int, str]]  # item and digest

DRAWN = ["fetch", "decode_image", {"random_resized_crop": {"size": [16, 16]}}]
FLIPPED = [*DRAWN, {"random_horizontal_flip": {"p": 0.5}}]


class Reader:
    """`consume --digest --per-row` as one shard of job 'run', which comes no further than its output
    is read, but for what a pipe holds."""

    def __init__(self, daemon: Any, shard: int, num_shards: int) -> None:
        self.got: list[tuple[Key, int, str]] = []  # each row, its item and digest
        self._process = subprocess.Popen(
            [
                *(daemon_module.build_dir() / "bin/spdlctl", "--address", daemon.address),
                *("consume", "images", "--job", "run", "--digest", "--per-row", "--epochs", "3"),
                *("--shard", str(shard), "--num-shards", str(num_shards), "--prefetch", "2"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def read(self, until: Callable[[Key], bool]) -> None:
        """Up to the first row for which that holds, or to the end."""
        for line in self._process.stdout:
            epoch, step, shard, _, item, digest = line.split()
            self.got.append(((int(epoch), int(step), int(shard)), int(item), digest))
            if until(self.got[-1][0]):
                return

    def close(self) -> str:
        """What it said when it was through."""
        self._process.kill()
        return self._process.communicate()[1]


@pytest.fixture
def data(make_dataset: Callable[..., Any]) -> Any:
    data = make_dataset(count=ITEMS, size=(24, 24), texture=True, name="shown")
    for item in BAD:
        data.files[item].write_bytes(b"no image")
    return data


@pytest.fixture
def write(data: Any, write_version: Callable[..., pathlib.Path]) -> Callable[..., pathlib.Path]:
    def write(stages: list[Any], batch: int = BATCH) -> pathlib.Path:
        return write_version(
            data,
            stages=stages,
            batch={"size": batch, "last": "keep"},
            on_error={"decode": "replace", "budget": {"fraction": 0.5}},
        )

    return write


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], write: Callable[..., pathlib.Path]) -> Any:
    daemon = make_daemon(pipelines=[write(DRAWN)])
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "2")
    return daemon


@pytest.fixture
def start_reader(daemon: Any) -> Iterator[Callable[[int, int], Reader]]:
    started: list[Reader] = []

    def start(shard: int, num_shards: int) -> Reader:
        started.append(Reader(daemon, shard, num_shards))
        return started[-1]

    yield start
    for reader in started:
        print(reader.close())


def read(readers: list[Reader], until: Callable[[Key], bool] = lambda _: False) -> None:
    """All of them at once: what one waits for may depend on another."""
    threads = [threading.Thread(target=reader.read, args=(until,)) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def given(readers: list[Reader]) -> dict[Key, list[Rows]]:
    """What each place was given, each time."""
    batches: dict[Key, list[Rows]] = collections.defaultdict(list)
    for reader in readers:
        for key, rows in itertools.groupby(reader.got, key=lambda row: row[0]):
            batches[key].append([row[1:] for row in rows])
    return batches


def show(daemon: Any, key: Key) -> dict[str, Any]:
    epoch, step, shard = key
    return daemon.ctl_json("show", "run", "--step", f"{epoch}/{step}", "--shard", str(shard))


def rows_of(shown: dict[str, Any]) -> Rows:
    return [(row["item"], row["digest"]) for row in shown["rows"]]


def refusal(daemon: Any, *arguments: str) -> str:
    refused = daemon.ctl("show", "run", *arguments, check=False)
    assert refused.returncode == 1, refused.stdout
    return refused.stderr


def test_rows_are_those_that_ranks_were_given_through_a_skip_a_swap_and_a_resize(
    daemon: Any,
    data: Any,
    write: Callable[..., pathlib.Path],
    start_reader: Callable[[int, int], Reader],
) -> None:
    foretold = show(daemon, (0, 3, 1))
    assert not foretold["sent"]
    readers = [start_reader(shard, 2) for shard in range(2)]
    read(readers, lambda key: key[1] == 4)
    skipped = daemon.ctl_json("job", "seek", "run", "--skip", "3")["dealt_from"]
    left_out = (0, skipped["step"] + 1, 0)
    unseen = show(daemon, left_out)
    assert unseen["turn"] is None and len(unseen["rows"]) == BATCH
    read(readers, lambda key: key[:2] >= (1, 1))
    daemon.ctl(
        *("apply", "-f", write(FLIPPED, 3), "--job", "run", "--at", "now", "--allow-schema-change")
    )
    daemon.ctl("job", "resize", "run", "--shards", "3")
    readers.append(start_reader(2, 3))
    read(readers, lambda key: key[:2] >= (2, 4))  # it comes in while the others are there
    read(readers)

    batches = given(readers)
    assert left_out not in batches
    assert rows_of(foretold) == batches[0, 3, 1][0]
    seen = collections.Counter()
    chosen = random.Random(3).sample(sorted(batches), 40)
    chosen += [key for key in batches if key[1] == 0]
    for number, key in enumerate(chosen):
        if number == 20:
            daemon.restart()
        shown = show(daemon, key)
        assert shown["sent"] and rows_of(shown) == batches[key][0], key
        for row in shown["rows"]:
            assert row["values"]["label"] == data.label(row["item"])
            assert row["class"] == data.classes[row["values"]["label"]]
            assert row["uri"] == str(data.files[row["item"]].relative_to(data.root))
        seen[shown["version"], shown["num_shards"]] += 1
    assert {(1, 2), (2, 3)} <= set(seen) <= {(1, 2), (2, 2), (2, 3)}


def test_replaced_rows_are_replaced_by_the_same_items(
    daemon: Any, start_reader: Callable[[int, int], Reader]
) -> None:
    readers = [start_reader(shard, 2) for shard in range(2)]
    read(readers, lambda key: key[0] == 1)
    batches = given(readers)
    positions = {
        failure["position"]
        for failure in daemon.ctl_json("get", "failures", "run")
        if failure["epoch"] == 0
    }
    assert len(positions) == len(BAD)
    for position in positions:
        step, row = divmod(position, 2 * BATCH)
        shown = show(daemon, (0, step, row // BATCH))
        assert rows_of(shown) == batches[0, step, row // BATCH][0]
        assert not shown["rows"][row % BATCH]["valid"]
        assert shown["rows"][row % BATCH]["item"] not in BAD
    assert daemon.ctl_json("get", "jobs", "run")["replaced"] == len(BAD)


def test_a_step_that_ranks_were_given_twice_is_shown_as_the_last_time(
    daemon: Any,
    write: Callable[..., pathlib.Path],
    start_reader: Callable[[int, int], Reader],
) -> None:
    key = (0, 110, 1)
    readers = [start_reader(shard, 2) for shard in range(2)]
    read(readers, lambda key: key[:2] >= (1, 4))
    first = show(daemon, key)
    assert first["sent"] and first["version"] == 1
    daemon.ctl("apply", "-f", write(FLIPPED), "--job", "run", "--at", "now")
    daemon.ctl("job", "seek", "run", "--epoch", "0", "--step", "100")
    read(readers)
    batches = given(readers)
    again = show(daemon, key)
    assert [rows_of(first), rows_of(again)] == batches[key]
    assert rows_of(first) != rows_of(again)
    assert again["version"] == 2 and again["turn"] > first["turn"]


def test_images_are_drawn_beside_the_list(daemon: Any, tmp_path: pathlib.Path) -> None:
    told = daemon.ctl("show", "run", "--step", "0/3", "-o", tmp_path / "grid.png").stdout
    drawn, step, headings, *rows = told.splitlines()
    assert drawn.endswith("2 rows in 2 columns, values as they are")
    assert step == (
        "epoch 0, step 3 of job 'run' on pipeline 'images': version 1, shard 0 of 2; "
        "to come at turn 3 of the run"
    )
    assert headings.split() == ["ROW", "ITEM", "VALID", "URI", "CLASS", "label"]
    assert len(rows) == BATCH
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.width >= 32 and len(grid.getcolors(1 << 16)) > 100


def test_what_a_job_does_not_have_is_refused_with_what_it_has(
    daemon: Any, start_reader: Callable[[int, int], Reader]
) -> None:
    assert "job 'run': epoch 7 has 240 steps; there is no step 240" in refusal(
        daemon, "--step", "7/240"
    )
    assert (
        "job 'run' has 2 shards at epoch 0, step 3, counted from 0; there is no shard 2"
        in refusal(daemon, "--step", "0/3", "--shard", "2")
    )
    create = ("job", "create", "short", "--pipeline", "images", "--shards", "1")
    daemon.ctl(*create, "--max-epochs", "2")
    refused = daemon.ctl("show", "short", "--step", "2/0", check=False)
    assert "job 'short' ends with epoch 1" in refused.stderr
    assert (
        "there is no job 'none'" in daemon.ctl("show", "none", "--step", "0/0", check=False).stderr
    )


def test_a_job_that_has_ended_is_said_to_have(daemon: Any, wait_until: Callable[..., Any]) -> None:
    daemon.ctl("consume", "images", "--job", "past", "--batches", "2")
    wait_until(lambda: "past" not in daemon.ctl("get", "jobs").stdout, "the job's end")
    refused = daemon.ctl("show", "past", "--step", "0/0", check=False)
    assert refused.returncode == 1
    assert "job 'past' has ended" in refused.stderr

# SPDX-License-Identifier: Apache-2.0
"""A job's data are what was applied: the table in docs/sessions.md, and what belongs to it."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from integration.applied_data import CLASSES, EACH, ITEMS, Data, Rank, label_of

GONE = "is gone since the dataset was listed; restore it, or apply the pipeline again"
BATCH = 2
# Of all three channels of 16 x 16 pixels, in a batch.
GREY_SUM = 3 * 16 * 16 * BATCH


@pytest.fixture
def data(tmp_path: pathlib.Path) -> Data:
    return Data(tmp_path / "data")


@pytest.fixture
def pipeline(data: Data, tmp_path: pathlib.Path) -> pathlib.Path:
    return write(tmp_path / "images.yaml", data)


def write(path: pathlib.Path, data: Data, name: str = "images", **files: Any) -> pathlib.Path:
    spec = {
        "pipeline": name,
        "vars": {"root": str(data.root)},
        "source": {
            "files": {"root": "${root}", "pattern": "**/*.jpg", "label": "parent_dir", **files}
        },
        "shuffle": "none",
        "stages": ["fetch", "decode_image", {"resize": {"size": [16, 16]}}],
        "batch": {"size": BATCH},
        "delivery": {"prefetch": 2},
    }
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in spec.items()))
    return path


@pytest.fixture
def start(daemon: Any) -> Iterator[Callable[..., Rank]]:
    started: list[Rank] = []

    def begin(pipeline: str | pathlib.Path = "images", **options: Any) -> Rank:
        started.append(Rank(pipeline=str(pipeline), address=daemon.address, **options))
        return started[-1]

    yield begin
    for rank in started:
        rank.close()


def read_until_error(rank: Rank) -> str:
    """The message; every row before it is as it was applied."""
    for _ in range(ITEMS):
        batch = rank.do("next")
        if "error" in batch:
            return str(batch["message"])
        assert "end" not in batch, "the epoch ended without an error"
        check_rows(batch)
    raise AssertionError("no error came")


def check_rows(batch: dict[str, Any]) -> None:
    assert batch["labels"] == [label_of(index) for index in batch["indices"]], batch


def check_epoch(batches: list[dict[str, Any]]) -> None:
    for batch in batches:
        check_rows(batch)
    assert [index for batch in batches for index in batch["indices"]] == list(range(ITEMS))


def check_whole_epoch(rank: Rank) -> None:
    """The rest of an epoch, and all of the next one."""
    rank.do("break_off")
    for batch in rank.rest_of_epoch():
        check_rows(batch)
    check_epoch(rank.rest_of_epoch())


CHANGES = ["remove_files", "add_files", "replace_files", "remove_classes", "swap_root"]
FAILING = {"remove_files", "remove_classes", "swap_root"}


@pytest.mark.parametrize("way", ["next loop", "new Loader", "reconnect", "restart", "state"])
@pytest.mark.parametrize("job", ["named", "private"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_job_has_the_files_and_classes_that_were_applied(
    change: str,
    job: str,
    way: str,
    daemon: Any,
    data: Data,
    pipeline: pathlib.Path,
    start: Callable[..., Rank],
) -> None:
    options = {"job": "run"} if job == "named" else {}
    rank = start(**options)
    check_rows(rank.next())
    state = rank.do("state")["state"]
    if way == "next loop" and change in FAILING:
        getattr(data, change)()
        if change == "swap_root":  # an open directory is read on until somebody attaches
            rank.do("hang_up")
        assert GONE in read_until_error(rank)
        rank.do("break_off")
    elif way == "restart":
        daemon.kill()
        getattr(data, change)()
        daemon.start()
    else:
        getattr(data, change)()
        if way == "reconnect":
            rank.do("hang_up")
        elif way != "next loop":
            rank.do("close")
            rank.close()
            rank = start(pipeline, **options)
        if way == "state":
            rank.do("load", state=state)

    if change in FAILING:
        assert GONE in read_until_error(rank)
        rank.do("break_off")
        assert GONE in read_until_error(rank)
        data.restore()
    check_whole_epoch(rank)
    if change == "replace_files":  # a name's content may change: what is there is read
        sums = {batch["indices"][0]: batch["sum"] for batch in rank.rest_of_epoch()}
        assert sums[0] == pytest.approx(100 * GREY_SUM, rel=0.02)
        assert sums[3 * EACH] == pytest.approx(200 * GREY_SUM, rel=0.02)
    (known,) = daemon.ctl_json("get", "pipelines")
    assert (known["version"], int(known["items"]), int(known["classes"])) == (1, ITEMS, CLASSES)


@pytest.mark.parametrize("restarted", [False, True])
def test_the_ledger_goes_on_when_a_file_was_added(
    restarted: bool, daemon: Any, data: Data, start: Callable[..., Rank]
) -> None:
    first = start(job="run")
    for batch in first.take(12):
        check_rows(batch)
    first.do("close")
    first.close()
    data.add_files()
    if restarted:
        daemon.restart()
    again = start(job="run", start="ledger")
    began = again.next()
    assert began["step"] > 0
    check_rows(began)
    check_whole_epoch(again)


def test_a_declared_job_survives_a_restart_with_a_file_added(
    daemon: Any, data: Data, start: Callable[..., Rank]
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", "1")
    data.add_files()
    daemon.restart()
    check_epoch(start(job="run").rest_of_epoch())


def test_an_apply_takes_what_has_come(
    daemon: Any, data: Data, pipeline: pathlib.Path, start: Callable[..., Rank]
) -> None:
    data.add_files()
    daemon.ctl("apply", "-f", pipeline)
    (known,) = daemon.ctl_json("get", "pipelines")
    assert (known["version"], int(known["items"]), int(known["classes"])) == (2, 62, 7)
    assert start().next()["labels"] == [0, 1]  # aaa_first, class_0


def test_a_rollback_has_the_files_of_the_version_that_it_repeats(
    daemon: Any, data: Data, pipeline: pathlib.Path, start: Callable[..., Rank]
) -> None:
    data.add_files()
    daemon.ctl("apply", "-f", pipeline)
    daemon.ctl("rollback", "images", "--to", "1")
    (known,) = daemon.ctl_json("get", "pipelines")
    assert (known["version"], int(known["items"]), int(known["classes"])) == (3, ITEMS, CLASSES)
    check_epoch(start().rest_of_epoch())


def test_a_class_that_comes_without_items_changes_no_number_until_an_apply(
    daemon: Any, data: Data, pipeline: pathlib.Path, start: Callable[..., Rank]
) -> None:
    (data.root / "aaa_first").mkdir()
    daemon.restart()
    check_epoch(start(pipeline).rest_of_epoch())
    daemon.ctl("apply", "-f", pipeline)
    assert start().next()["labels"] == [1, 1]
    assert len(daemon.ctl_json("get", "classes", "images")) == CLASSES + 1


def test_a_file_of_class_names_counts_as_it_was_applied(
    daemon: Any, data: Data, tmp_path: pathlib.Path, start: Callable[..., Rank]
) -> None:
    names = [f"class_{label}" for label in range(CLASSES)]
    listed = tmp_path / "classes.txt"
    listed.write_text("\n".join(names))
    file = write(tmp_path / "listed.yaml", data, "listed", classes=str(listed))
    daemon.ctl("apply", "-f", file)
    listed.write_text("\n".join(reversed(names)))
    daemon.restart()
    check_epoch(start(file, job="run").rest_of_epoch())
    daemon.ctl("apply", "-f", file)
    assert start("listed").next()["labels"] == [CLASSES - 1] * BATCH


def test_classes_of_another_pipeline_are_fixed_when_they_are_applied(
    daemon: Any,
    data: Data,
    pipeline: pathlib.Path,
    tmp_path: pathlib.Path,
    start: Callable[..., Rank],
) -> None:
    file = write(tmp_path / "val.yaml", data, "val", classes={"from": "images"})
    daemon.ctl("apply", "-f", file)
    data.add_files()
    daemon.ctl("apply", "-f", pipeline)
    daemon.restart()
    check_epoch(start(file).rest_of_epoch())
    assert len(daemon.ctl_json("get", "classes", "val")) == CLASSES


def test_variables_that_lead_to_other_data_find_what_they_found_first(
    daemon: Any,
    data: Data,
    pipeline: pathlib.Path,
    tmp_path: pathlib.Path,
    start: Callable[..., Rank],
) -> None:
    other = Data(tmp_path / "other")
    first = start(vars={"root": str(other.root)})
    check_rows(first.next())
    other.add_files()
    check_epoch(start(vars={"root": str(other.root)}).rest_of_epoch())
    first.do("hang_up")
    check_whole_epoch(first)
    daemon.ctl("apply", "-f", pipeline)
    assert start(vars={"root": str(other.root)}).next()["labels"] == [0, 1]


def test_a_loader_that_brings_the_same_text_says_that_the_data_have_changed(
    daemon: Any,
    data: Data,
    pipeline: pathlib.Path,
    start: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    def warnings() -> list[str]:
        return [text for text in daemon.ctl_json("status")["warnings"] if "was applied" in text]

    start(pipeline).next()
    assert warnings() == []
    data.add_files()
    check_epoch(start(pipeline).rest_of_epoch())
    (warning,) = wait_until(warnings, "the warning")
    assert f"{data.root} lists 62 items now" in warning and "spdlctl apply" in warning
    daemon.await_log(warning)
    daemon.ctl("apply", "-f", pipeline)
    assert warnings() == []


def test_a_warning_of_empty_classes_goes_with_an_apply_that_has_none(
    daemon: Any, data: Data, pipeline: pathlib.Path
) -> None:
    def warnings() -> list[str]:
        return [text for text in daemon.ctl_json("status")["warnings"] if "no item" in text]

    (data.root / "class_9").mkdir()
    daemon.ctl("apply", "-f", pipeline)
    assert len(warnings()) == 1
    (data.root / "class_9").rmdir()
    daemon.ctl("apply", "-f", pipeline)
    assert warnings() == []


def lose_listings(daemon: Any, damage: str) -> None:
    for file in (daemon.state_dir / "listings").iterdir():
        if damage == "removed":
            file.unlink()
        else:
            file.write_bytes(b"nonsense")


@pytest.mark.parametrize("damage", ["removed", "damaged"])
def test_a_listing_that_is_lost_is_never_replaced_in_silence(
    damage: str,
    daemon: Any,
    data: Data,
    pipeline: pathlib.Path,
    start: Callable[..., Rank],
) -> None:
    rank = start(job="run")
    check_rows(rank.next())
    state = rank.do("state")["state"]
    rank.do("close")
    daemon.stop()
    data.add_files()
    lose_listings(daemon, damage)
    daemon.start()
    for options in (
        {"pipeline": "images"},
        {"pipeline": pipeline},
        {"pipeline": pipeline, "job": "run"},
    ):
        refused = start(**options).do("next")["message"]
        assert str(daemon.state_dir / "listings") in refused, refused
        assert "apply the pipeline again" in refused, refused
    daemon.ctl("apply", "-f", pipeline)
    (known,) = daemon.ctl_json("get", "pipelines")
    assert (known["version"], int(known["items"])) == (2, ITEMS + 2)
    assert start().next()["labels"] == [0, 1]
    resumed = start(job="run")
    resumed.do("load", state=state)
    refused = resumed.do("next")["message"]
    assert "job 'run' cannot go on" in refused and "start" in refused, refused
    assert start(job="anew").next()["labels"] == [0, 1]


@pytest.mark.parametrize("damage", ["removed", "damaged"])
def test_a_listing_that_is_lost_is_made_again_while_the_data_are_the_same(
    damage: str, daemon: Any, pipeline: pathlib.Path, start: Callable[..., Rank]
) -> None:
    rank = start(job="run")
    check_rows(rank.next())
    daemon.kill()
    lose_listings(daemon, damage)
    daemon.start()
    check_whole_epoch(rank)
    daemon.restart()
    (known,) = daemon.ctl_json("get", "pipelines")
    assert (known["version"], int(known["items"])) == (1, ITEMS)


def test_a_daemon_that_starts_without_the_data_serves_them_when_they_come(
    daemon: Any, data: Data, start: Callable[..., Rank]
) -> None:
    daemon.stop()
    aside = data.root.rename(data.root.with_name("unmounted"))
    daemon.start()
    rank = start(job="run")
    assert GONE in read_until_error(rank)
    aside.rename(data.root)
    check_whole_epoch(rank)

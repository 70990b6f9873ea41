# SPDX-License-Identifier: Apache-2.0
"""Files that are no images: replaced within a budget and told, or an error that names them."""

from __future__ import annotations

import dataclasses
import pathlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank

ITEMS, BATCH = 24, 4


@dataclasses.dataclass
class Damage:
    data: Any
    bad: dict[int, str]  # index of an item, and what was done to it


@pytest.fixture
def damage(make_dataset: Callable[..., Any], request: pytest.FixtureRequest) -> Damage:
    """A dataset of this test's own with a truncated, a random, a text and an empty file."""
    data = make_dataset(count=ITEMS, texture=True, name=request.node.name)
    whole = data.files[2].read_bytes()
    data.files[2].write_bytes(whole[: len(whole) // 2])
    data.files[7].write_bytes(whole[:64] + random.Random(7).randbytes(2000))
    data.files[11].write_text("<html>404 Not Found</html>\n")
    data.files[20].write_bytes(b"")
    return Damage(data, {2: "truncated", 7: "random", 11: "text", 20: "empty"})


def pipeline_of(
    write_pipeline: Callable[..., Any], damage: Damage, **on_error: Any
) -> pathlib.Path:
    return write_pipeline(
        damage.data,
        batch={"size": BATCH, "last": "keep", "layout": "NCHW"},
        on_error={"decode": "replace", "budget": {"fraction": 0, "min": 4}, **on_error},
    )


@pytest.fixture
def pipeline(write_pipeline: Callable[..., Any], damage: Damage) -> pathlib.Path:
    return pipeline_of(write_pipeline, damage)


def test_bad_files_are_replaced_by_others_and_marked(
    daemon: Any, start_rank: Callable[..., Rank], damage: Damage
) -> None:
    batches = start_rank(daemon, job="run").rest_of_epoch()
    rows = [
        (index, valid, label)
        for batch in batches
        for index, valid, label in zip(
            batch["indices"], batch["valid"], batch["labels"], strict=True
        )
    ]
    assert len(rows) == ITEMS
    good = set(range(ITEMS)) - set(damage.bad)
    assert {index for index, valid, _ in rows if valid} == good
    substitutes = [index for index, valid, _ in rows if not valid]
    assert len(substitutes) == len(damage.bad)
    assert set(substitutes) <= good
    assert all(label == damage.data.label(index) for index, _, label in rows)


def test_replaced_files_are_listed_with_why_and_by_what(
    daemon: Any, start_rank: Callable[..., Rank], damage: Damage
) -> None:
    batches = start_rank(daemon, job="run").rest_of_epoch()
    failures = [f for f in daemon.ctl_json("get", "failures") if f["epoch"] == 0]
    by_item = {failure["item"]: failure for failure in failures}
    assert set(by_item) == set(damage.bad)
    delivered = {index for batch in batches for index in batch["indices"]}
    for item, failure in by_item.items():
        assert failure["uri"] == str(damage.data.files[item].relative_to(damage.data.root))
        assert failure["job"] == "run"
        assert failure["code"] in ("DATA_LOSS", "INVALID_ARGUMENT")
        assert failure["message"]
        assert failure["replaced_by"] in delivered | set(damage.bad)
    shown = daemon.ctl("get", "failures").stdout
    assert all(damage.data.files[item].name in shown for item in damage.bad)
    job = daemon.ctl_json("get", "jobs", "run")
    assert (job["replaced"], job["replace_budget"]) == (4, 4)


def test_substitutes_are_the_same_for_all_threads_and_after_a_restart(
    make_daemon: Callable[..., Any], pipeline: pathlib.Path
) -> None:
    seen = set()
    for threads in (1, 4):
        daemon = make_daemon(
            pipelines=[pipeline], settings={"executor": {"cpu_threads": threads, "io_threads": 2}}
        )
        for _ in range(2):
            seen.add(daemon.ctl("consume", "images", "--digest", "--per-row").stdout)
            daemon.restart()
        daemon.stop()
    assert len(seen) == 1


def test_an_exceeded_budget_is_an_error_that_names_the_item(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], damage: Damage
) -> None:
    pipeline = pipeline_of(write_pipeline, damage, budget={"fraction": 0, "min": 3})
    daemon = make_daemon(pipelines=[pipeline])
    done = daemon.ctl("consume", "images", check=False)
    assert done.returncode == 1
    assert "3 items were replaced already, which is all that on_error.budget allows" in done.stderr
    assert any(f"item {item} (" in done.stderr for item in damage.bad)
    assert "mend the data or raise the budget" in done.stderr


def test_the_budget_survives_a_restart(daemon: Any, damage: Damage) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images")
    daemon.ctl("consume", "images", "--job", "run")
    daemon.stop()
    daemon.start()
    assert daemon.ctl_json("get", "jobs", "run")["replaced"] == 4
    # The same four once more are no new ones; a fifth is one too many.
    assert daemon.ctl("consume", "images", "--job", "run").returncode == 0
    damage.data.files[15].write_bytes(b"")
    done = daemon.ctl("consume", "images", "--job", "run", check=False)
    assert done.returncode == 1
    assert "item 15 (" in done.stderr
    assert "4 items were replaced already" in done.stderr


def test_on_error_fail_ends_the_job_at_the_first_bad_file(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], damage: Damage
) -> None:
    daemon = make_daemon(pipelines=[pipeline_of(write_pipeline, damage, decode="fail")])
    done = daemon.ctl("consume", "images", check=False)
    assert done.returncode == 1
    assert any(
        f"item {item} ({damage.data.files[item].relative_to(damage.data.root)})" in done.stderr
        for item in damage.bad
    ), done.stderr
    assert "remove or mend it, or set 'on_error: {decode: replace}'" in done.stderr
    assert daemon.ctl("status").returncode == 0


def test_a_file_that_was_removed_since_it_was_listed_is_an_error_and_not_replaced(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    make_dataset: Callable[..., Any],
) -> None:
    data = make_dataset(count=ITEMS, name="removed")
    daemon = make_daemon(pipelines=[write_pipeline(data, batch={"size": BATCH, "last": "keep"})])
    data.files[5].unlink()
    done = daemon.ctl("consume", "images", check=False)
    assert done.returncode == 1
    assert f"{data.files[5]} is gone since the dataset was listed" in done.stderr
    assert "restore it, or apply the pipeline again" in done.stderr


def test_a_dataset_without_any_image_is_an_error_and_no_endless_search(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    make_dataset: Callable[..., Any],
) -> None:
    data = make_dataset(count=ITEMS, name="no-images")
    for file in data.files:
        file.write_bytes(b"nothing")
    daemon = make_daemon(pipelines=[write_pipeline(data)])
    done = daemon.ctl("consume", "images", check=False)
    assert done.returncode == 1
    assert "the 16 items tried in its place failed, too" in done.stderr

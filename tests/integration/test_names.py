# SPDX-License-Identifier: Apache-2.0
"""Whose pipeline a name means: a user's own, or the one that an admin shares with all."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from users import ANN, BOB, Place, load

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture
def place() -> Iterator[Place]:
    with contextlib.closing(Place()) as made:
        yield made


def items(place: Place, user: int, name: str) -> int:
    done = place.ctl(user, "get", "pipelines", name, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["items"]


def names(place: Place, user: int) -> set[str]:
    done = place.ctl(user, "get", "pipelines", "-o", "json")
    return {pipeline["name"] for pipeline in json.loads(done.stdout)}


def jobs(place: Place, user: int) -> dict[str, Any]:
    return {
        job["job"]: job for job in json.loads(place.ctl(user, "get", "jobs", "-o", "json").stdout)
    }


def jobs_ended(place: Place, user: int) -> set[str]:
    done = place.ctl(user, "get", "jobs", "--ended", "-o", "json")
    return {job["pipeline"] for job in json.loads(done.stdout)}


def of_size(place: Place, name: str, count: int) -> pathlib.Path:
    """A pipeline file of that name over so many of eight items."""
    root = place.directory / f"of-{count}"
    if not root.exists():
        place.dataset(root.name, owner=0)
    files = {"root": str(root), "pattern": f"d/[0-{count - 1}]"}
    return place.pipeline(name, root, source={"files": files})


def test_two_users_have_a_pipeline_of_one_name_each(place: Place) -> None:
    assert place.apply(ANN, of_size(place, "train", 3)) == ""
    assert place.apply(BOB, of_size(place, "train", 5)) == ""
    assert (items(place, ANN, "train"), items(place, BOB, "train")) == (3, 5)
    assert place.consume(ANN, "train", "--job", "run") == ""
    assert place.ctl(BOB, "delete", "pipeline", "train").returncode == 0
    assert items(place, ANN, "train") == 3
    assert (names(place, ANN), names(place, BOB)) == ({"train"}, set())


def test_ones_own_name_counts_before_the_shared_one(place: Place) -> None:
    assert place.apply(0, of_size(place, "train", 3)) == ""
    assert items(place, ANN, "train") == 3
    assert place.apply(ANN, of_size(place, "train", 5)) == ""
    assert (items(place, ANN, "train"), items(place, ANN, "/train")) == (5, 3)
    assert (items(place, BOB, "train"), items(place, 0, "train")) == (3, 3)
    assert names(place, ANN) == {"train", "/train"}
    assert names(place, BOB) == {"train"}
    place.daemon.restart()
    assert (items(place, ANN, "train"), items(place, ANN, "/train")) == (5, 3)
    assert place.ctl(ANN, "delete", "pipeline", "train").returncode == 0
    assert items(place, ANN, "train") == 3


def test_a_shared_pipeline_is_changed_by_admins_alone(place: Place) -> None:
    assert place.apply(0, of_size(place, "train", 3)) == ""
    assert place.apply(0, of_size(place, "train", 4)) == ""
    for command in (["delete", "pipeline", "train"], ["rollback", "train"]):
        done = place.ctl(ANN, *command)
        assert done.returncode == 1
        assert "'train' is shared by all users, and uid" in done.stderr, done.stderr
    assert place.apply(ANN, of_size(place, "train", 5)) == ""
    assert items(place, BOB, "train") == 4
    assert place.ctl(0, "rollback", "train").returncode == 0
    assert items(place, BOB, "train") == 3


def test_admins_name_other_users_pipelines_and_others_do_not(place: Place) -> None:
    assert place.apply(ANN, of_size(place, "train", 3)) == ""
    assert place.apply(0, of_size(place, "train", 5)) == ""
    assert items(place, 0, f"{ANN}/train") == items(place, ANN, f"{ANN}/train") == 3
    assert names(place, 0) == {"train", f"{ANN}/train"}
    for name in (f"{ANN}/train", "root/train"):
        done = place.ctl(BOB, "get", "pipelines", name)
        assert done.returncode == 1
        assert f"'{name}' is another user's, and uid {BOB} is not in access.admins" in done.stderr
        assert "is another user's" in place.consume(BOB, name)
    assert "there is no such user on this machine" in place.ctl(0, "get", "pipelines", "x/y").stderr
    assert place.consume(ANN, "train", "--job", "run") == ""
    assert place.ctl(0, "delete", "pipeline", f"{ANN}/train").returncode == 0
    assert items(place, ANN, "train") == 5


def test_a_job_is_named_by_its_pipeline_as_its_user_names_it(place: Place) -> None:
    assert place.apply(0, of_size(place, "train", 3)) == ""
    made = place.ctl(ANN, "job", "create", "run", "--pipeline", "train")
    assert made.returncode == 0, made.stderr
    assert place.apply(ANN, of_size(place, "train", 5)) == ""
    # It stays on the pipeline that it began on.
    assert jobs(place, ANN)["run"]["pipeline"] == "/train"
    assert place.consume(ANN, "train", "--job", "run") == ""
    made = place.ctl(ANN, "job", "create", "run", "--pipeline", "train")
    assert made.returncode == 0, made.stderr
    resize = ["job", "resize", "run", "--shards", "2"]
    told = place.ctl(ANN, *resize).stderr
    assert f"several jobs 'run': 'train' (uid {ANN}), '/train' (uid {ANN})" in told, told
    assert place.ctl(ANN, *resize, "--pipeline", "/train").returncode == 0
    assert place.ctl(ANN, *resize, "--pipeline", "train").returncode == 0
    by_pipeline = {
        job["pipeline"]: job["num_shards"]
        for job in json.loads(place.ctl(0, "get", "jobs", "-o", "json").stdout)
    }
    assert by_pipeline == {"train": 2, f"{ANN}/train": 2}
    listed = place.ctl(0, "get", "jobs", "--pipeline", f"{ANN}/train", "-o", "json").stdout
    assert [job["pipeline"] for job in json.loads(listed)] == [f"{ANN}/train"]
    # A change of the one is none of the other's.
    swapped = place.ctl(ANN, "apply", "-f", of_size(place, "train", 7), "--job", "run")
    assert swapped.returncode == 0, swapped.stderr
    versions = {
        job["pipeline"]: job["phases"][-1]["pipeline_version"]
        for job in json.loads(place.ctl(0, "get", "jobs", "-o", "json").stdout)
    }
    assert versions == {"train": 1, f"{ANN}/train": 2}
    place.daemon.restart()
    assert jobs(place, BOB) == {}
    assert place.ctl(0, "delete", "job", "run", "--pipeline", f"{ANN}/train").returncode == 0
    assert [job["pipeline"] for job in jobs(place, ANN).values()] == ["/train"]


def test_classes_come_from_ones_own_pipeline_or_else_the_shared_one(place: Place) -> None:
    def labelled(name: str, classes: Any) -> pathlib.Path:
        root = place.directory / "of-8"
        files = {"root": str(root), "pattern": "**", "label": "parent_dir", "classes": classes}
        return place.pipeline(name, root, source={"files": files})

    of_size(place, "none", 8)
    assert place.apply(0, labelled("train", ["d", "shared"])) == ""
    assert place.apply(ANN, labelled("train", ["d", "own", "more"])) == ""
    following = labelled("test", {"from": "train"})
    for user in (ANN, BOB):
        assert place.apply(user, following) == ""

    def classes(user: int) -> int:
        done = place.ctl(user, "get", "pipelines", "test", "-o", "json")
        return json.loads(done.stdout)["classes"]

    assert (classes(ANN), classes(BOB)) == (3, 2)


def as_lines(path: pathlib.Path) -> pathlib.Path:
    """A key a line, as loaders find the name."""
    lines = [f"{key}: {json.dumps(value)}" for key, value in json.loads(path.read_text()).items()]
    path.write_text("\n".join(lines))
    return path


def test_a_loader_that_brings_another_text_than_the_shared_one_gets_its_own(place: Place) -> None:
    path = as_lines(of_size(place, "train", 3))
    assert place.apply(0, path) == ""
    assert load(place, ANN, path) == "train 3"
    assert names(place, ANN) == {"train"}
    changed = as_lines(of_size(place, "train", 5))
    assert load(place, ANN, changed) == "train 5"
    assert names(place, ANN) == {"train", "/train"}
    assert load(place, ANN, "/train") == "/train 3"
    assert load(place, 0, f"{ANN}/train") == f"{ANN}/train 5"
    # An admin's loader brings what would be shared, and that is there.
    assert "differs from the one that this loader brings" in load(place, 0, changed)


def test_a_run_that_has_ended_holds_no_name(place: Place) -> None:
    path = as_lines(of_size(place, "train", 3))
    assert place.apply(0, path) == ""
    assert load(place, ANN, path, "run") == "train 3"
    # Another run of that name is no part of the earlier one, which went on the shared pipeline.
    changed = as_lines(of_size(place, "train", 5))
    assert load(place, ANN, changed, "run") == "train 5"
    assert jobs_ended(place, ANN) == {"train", "/train"}


def test_classes_of_a_pipeline_that_cannot_be_opened_are_nobody_elses(place: Place) -> None:
    def labelled(name: str, root: str, classes: Any) -> pathlib.Path:
        files = {"root": root, "pattern": "**", "label": "parent_dir", "classes": classes}
        return place.pipeline(name, root, source={"files": files})

    kept, lost = place.dataset("kept", owner=0), place.dataset("lost", owner=0)
    assert place.apply(0, labelled("train", str(kept), ["d", "shared"])) == ""
    assert place.apply(ANN, labelled("train", str(lost), ["d", "own", "more"])) == ""
    place.daemon.stop()
    lost.chmod(0o700)
    place.daemon.start()
    told = place.apply(ANN, labelled("test", str(kept), {"from": "train"}))
    assert "pipeline 'train': cannot list" in told and "may not read" in told, told
    assert place.apply(BOB, labelled("test", str(kept), {"from": "train"})) == ""


def test_a_pipeline_brought_by_a_loader_gives_way_to_the_next_ones() -> None:
    with contextlib.closing(Place({"limits": {"pipelines": 2}})) as place:
        for name in ("a", "b", "c", "d"):
            assert load(place, ANN, as_lines(of_size(place, name, 3))) == f"{name} 3"
        assert len(names(place, ANN)) == 2
        place.daemon.await_log("gives way to another one")
        assert place.apply(ANN, of_size(place, "d", 3)) == ""
        for name in ("e", "f", "g"):
            assert load(place, ANN, as_lines(of_size(place, name, 3))) == f"{name} 3"
        assert "d" in names(place, ANN)


def test_an_admin_names_one_of_two_users_jobs_on_a_shared_pipeline(place: Place) -> None:
    assert place.apply(0, of_size(place, "train", 3)) == ""
    for user in (ANN, BOB):
        made = place.ctl(user, "job", "create", "run", "--pipeline", "train")
        assert made.returncode == 0, made.stderr
    told = place.ctl(0, "delete", "job", "run").stderr
    assert f"'train' (uid {ANN}), 'train' (uid {BOB})" in told and "USER/run" in told, told
    assert place.ctl(0, "delete", "job", f"{ANN}/run").returncode == 0
    assert (set(jobs(place, ANN)), set(jobs(place, BOB))) == (set(), {"run"})
    assert place.ctl(ANN, "delete", "job", f"{BOB}/run").returncode == 1
    assert set(jobs(place, BOB)) == {"run"}


def test_a_users_job_on_a_shared_pipeline_is_no_matter_of_the_users_own(place: Place) -> None:
    assert place.apply(0, of_size(place, "train", 3)) == ""
    made = place.ctl(ANN, "job", "create", "run", "--pipeline", "train")
    assert made.returncode == 0, made.stderr
    done = place.ctl(ANN, "apply", "-f", of_size(place, "train", 5), "--job", "run")
    assert done.returncode == 1
    assert "job 'run' runs the shared pipeline 'train', which admins change" in done.stderr

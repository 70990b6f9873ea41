# SPDX-License-Identifier: Apache-2.0
"""With `access.trust_root: false` root, such as that of a container, is one user among others."""

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

ROOT, SERVICE = 0, 31003
UNTRUSTED = "access.trust_root is false"
NO_ADMIN = f"uid 0 ({UNTRUSTED}) is not in access.admins"


@pytest.fixture(params=[None, SERVICE], ids=["daemon-of-root", "daemon-of-a-user"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    access = {"roots": ["/"], "trust_root": False, "admins": [str(ANN)]}
    with contextlib.closing(Place({"access": access}, uid=request.param)) as made:
        yield made


@contextlib.contextmanager
def place_of_root(**access: Any) -> Iterator[Place]:
    settings = {"access": {"roots": ["/"], "trust_root": False, **access}}
    with contextlib.closing(Place(settings)) as made:
        yield made


def configure(place: Place, *paths: pathlib.Path, **access: Any) -> None:
    """Of a daemon that has these pipelines from its next start on."""
    settings = {"access": {"roots": ["/"], "trust_root": False, "admins": [str(ANN)], **access}}
    place.daemon.configure(pipelines=list(paths), settings=settings)


def listed(place: Place, user: int, *what: str) -> list[dict[str, Any]]:
    done = place.ctl(user, "get", *what, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(place: Place, user: int, *command: str | pathlib.Path) -> str:
    done = place.ctl(user, *command)
    assert done.returncode == 1, done
    return done.stderr


def test_root_reads_nothing_that_uid_0_owns_alone() -> None:
    with place_of_root(admins=[str(ANN)]) as place:
        closed = place.dataset("closed", owner=ROOT, mode=0o700)
        by_group = place.dataset("by-group", owner=ROOT, mode=0o750)
        for root in (closed, by_group):
            told = place.apply(ROOT, place.pipeline(root.name, root))
            assert f"may not read {root}" in told and UNTRUSTED in told, told
        mixed = place.dataset("mixed", owner=BOB)
        secret = mixed / "d" / "5"
        os.chown(secret, ROOT, ROOT)
        secret.chmod(0o640)
        assert place.apply(ROOT, place.pipeline("mixed", mixed)) == ""
        told = place.consume(ROOT, "mixed")
        assert f"may not read {secret}" in told and UNTRUSTED in told, told
        for command in ("preview", "explain"):
            told = refused(place, ROOT, command, "-f", place.directory / "closed.yaml")
            assert UNTRUSTED in told, told
        extending = place.pipeline("extending", mixed, extends="/etc/shadow")
        told = place.apply(ROOT, extending)
        assert "may not read /etc/shadow" in told and "root:" not in told, told


def test_root_reads_what_a_daemon_of_another_user_can_and_everybody_may(place: Place) -> None:
    closed = place.dataset("closed", owner=ROOT, mode=0o700)
    assert "cannot list" in place.apply(ROOT, place.pipeline("closed", closed))
    of_bob = place.dataset("of-bob", owner=BOB, mode=0o700)
    assert UNTRUSTED in place.apply(ROOT, place.pipeline("of-bob", of_bob))
    path = place.pipeline("open", place.dataset("open", owner=ROOT))
    assert place.apply(ROOT, path) == ""
    assert place.consume(ROOT, "open") == ""
    assert load(place, ROOT, "open") == "open 8"


def test_root_administers_nothing(place: Place) -> None:
    data = place.dataset("data", owner=BOB)
    for size in (2, 1):
        shared = place.pipeline("shared", data, batch={"size": size, "max_bytes": "64KiB"})
        assert place.apply(ANN, shared) == ""
    assert place.apply(BOB, place.pipeline("own", data)) == ""
    for name in ("own", "shared"):
        made = place.ctl(BOB, "job", "create", f"on-{name}", "--pipeline", name)
        assert made.returncode == 0, made.stderr
    for command in (
        ["delete", "pipeline", "shared"],
        ["rollback", "shared"],
        ["delete", "pipeline", f"{BOB}/own"],
        ["get", "pipelines", f"{BOB}/own"],
    ):
        assert NO_ADMIN in refused(place, ROOT, *command)
    for command in (
        ["delete", "job", "on-own"],
        ["delete", "job", f"{BOB}/on-own"],
        ["tune", "on-shared", "weight=2"],
        ["job", "seek", "on-own", "--epoch", "1"],
        ["get", "jobs", "on-own"],
    ):
        told = refused(place, ROOT, *command)
        assert f"that uid 0 ({UNTRUSTED}) may see" in told, told
    told = refused(place, ROOT, "evict", "1", "--reason", "no")
    assert f"there is no session 1 that uid 0 ({UNTRUSTED}) may end" in told, told
    # What it applies is its own, as of any user, and changes nobody's job.
    assert place.apply(ROOT, shared) == ""
    assert {pipeline["owner"] for pipeline in listed(place, BOB, "pipelines")} == {ANN, BOB}
    assert {job["job"] for job in listed(place, ANN, "jobs")} == {"on-own", "on-shared"}


def test_root_sees_what_any_user_sees(place: Place) -> None:
    assert place.apply(ANN, place.pipeline("shared", place.dataset("data", owner=BOB))) == ""
    assert place.apply(BOB, place.pipeline("own", place.directory / "data")) == ""
    for user, name in ((BOB, "own"), (ANN, "shared"), (ROOT, "shared")):
        assert place.consume(user, name, "--job", f"of-{user}") == ""
    assert [pipeline["name"] for pipeline in listed(place, ROOT, "pipelines")] == ["shared"]
    assert {job["job"] for job in listed(place, ROOT, "jobs", "--ended")} == {f"of-{ROOT}"}
    assert {user["uid"] for user in listed(place, ROOT, "users")} == {ROOT}
    assert {job["job"] for job in listed(place, ANN, "jobs", "--ended")} == {
        f"of-{user}" for user in (ROOT, ANN, BOB)
    }


def test_ordinary_users_read_as_before(place: Place) -> None:
    root = place.dataset("data", owner=ANN)
    assert place.apply(BOB, place.pipeline("own", root)) == ""
    assert place.consume(BOB, "own") == ""
    assert load(place, BOB, "own", "run") == "own 8"
    (root / "d" / "5").chmod(0o600)
    told = place.consume(BOB, "own")
    assert told != "" and UNTRUSTED not in told, told


def test_the_daemons_own_pipelines_are_shared_and_read_with_its_rights(place: Place) -> None:
    daemon_uid = os.stat(place.daemon.state_dir).st_uid
    data = place.dataset("data", owner=ANN if daemon_uid == ROOT else SERVICE, mode=0o700)
    path = place.pipeline("configured", data)
    configure(place, path)
    place.daemon.restart()
    for _ in range(2):
        (pipeline,) = listed(place, ANN, "pipelines")
        assert (pipeline["name"], pipeline["owner"]) == ("configured", daemon_uid)
        told = place.consume(ROOT, "configured")
        assert f"may not read {data}" in told and UNTRUSTED in told, told
        assert NO_ADMIN in refused(place, ROOT, "delete", "pipeline", "configured")
        reader = ANN if daemon_uid == ROOT else SERVICE
        assert place.consume(reader, "configured") == ""
        assert max(user["uid"] for user in listed(place, ANN, "users")) < 1 << 31
        # Also after a change of the file, and a restart.
        place.pipeline("configured", data, batch={"size": 2, "max_bytes": "64KiB"})
        place.daemon.restart()
    assert listed(place, ANN, "pipelines")[0]["version"] == 2
    revisions = listed(place, ANN, "pipelines", "configured", "--history")
    assert {revision["applied_by"] for revision in revisions} == {daemon_uid}


def test_the_limits_count_for_root() -> None:
    settings = {
        "access": {"roots": ["/"], "trust_root": False, "admins": [str(ANN)]},
        "limits": {"jobs": 1, "pipelines": 1},
    }
    with contextlib.closing(Place(settings)) as place:
        root = place.dataset("data", owner=BOB)
        for user, told in ((ROOT, "limits.pipelines allows 1"), (ANN, "")):
            assert place.apply(user, place.pipeline("first", root)) == ""
            assert told in place.apply(user, place.pipeline("second", root))
        assert place.ctl(ROOT, "job", "create", "a", "--pipeline", "first").returncode == 0
        told = refused(place, ROOT, "job", "create", "b", "--pipeline", "first")
        assert "limits.jobs allows 1" in told
        (of_root,) = listed(place, ROOT, "users")
        for limited in ("pipelines", "jobs", "listing_bytes", "arena_bytes"):
            assert of_root[limited]["limit"] is not None, limited


def test_what_a_trusted_root_applied_is_closed_to_it_when_it_is_trusted_no_more() -> None:
    with place_of_root(trust_root=True) as place:
        data = place.dataset("private", owner=ROOT, mode=0o700)
        assert place.apply(ROOT, place.pipeline("private", data)) == ""
        assert place.consume(ROOT, "private") == ""
        configure(place)
        place.daemon.restart()
        told = place.consume(ROOT, "private", "--start", "ledger", "--job", "any")
        assert UNTRUSTED in told, told
        assert NO_ADMIN in refused(place, ROOT, "delete", "pipeline", "private")


def test_a_root_that_is_named_administers_and_is_compared_all_the_same() -> None:
    with place_of_root(admins=["root"]) as place:
        assert place.apply(BOB, place.pipeline("own", place.dataset("data", owner=BOB))) == ""
        closed = place.dataset("closed", owner=ROOT, mode=0o700)
        assert UNTRUSTED in place.apply(ROOT, place.pipeline("closed", closed))
        assert place.ctl(ROOT, "delete", "pipeline", f"{BOB}/own").returncode == 0
        assert listed(place, BOB, "pipelines") == []


def test_a_daemon_that_nobody_may_administer_says_so() -> None:
    with place_of_root() as place:
        place.daemon.await_log("access.admins names nobody: nobody may administer it")
    with place_of_root(admins=[str(ANN)]) as place:
        assert "nobody may administer" not in place.daemon.log()

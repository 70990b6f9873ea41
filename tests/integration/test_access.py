# SPDX-License-Identifier: Apache-2.0
"""Who may read what: a daemon of root's serves several users, each with their own rights."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest
from users import ANN, BOB, MEMBERS, OTHERS, Place

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

SECRET = "a secret that nobody else may see"
# So many attaches while names are exchanged; tests/long/rename-race.sh asks for more.
RACES = int(os.environ.get("SPDLD_RACE_TRIES", "16"))


@pytest.fixture
def place() -> Iterator[Place]:
    with contextlib.closing(Place()) as made:
        yield made


def set_acl(path: pathlib.Path, *entries: tuple[int, int, int]) -> None:
    """Entries of tag, what is allowed, and id, in the kernel's order."""
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", value)
    except OSError:
        pytest.skip("this file system has no ACLs")


def acl_for(user: int, allowed: int, others: int) -> list[tuple[int, int, int]]:
    nobody = 0xFFFFFFFF
    return [
        (0x01, 7, nobody),
        (0x02, allowed, user),
        (0x04, others, nobody),
        (0x10, 7, nobody),
        (0x20, others, nobody),
    ]


def test_a_closed_directory_is_read_by_its_owner_alone(place: Place) -> None:
    root = place.dataset("closed", owner=ANN, mode=0o700)
    of_bob = place.pipeline("of-bob", root)
    told = place.apply(BOB, of_bob)
    assert f"uid {BOB}" in told and f"may not read {root}, which is drwx------" in told
    labelled = {"root": str(root), "pattern": "**", "label": "parent_dir"}
    of_ann = place.pipeline("of-ann", "", source={"files": labelled})
    assert place.apply(ANN, of_ann) == ""
    assert place.consume(ANN, "of-ann") == ""
    # By the name of what an admin has applied.
    assert place.apply(0, of_ann) == ""
    told = place.consume(BOB, "of-ann")
    assert "may not read" in told and str(root) in told
    told = place.ctl(BOB, "get", "classes", "/of-ann").stderr
    assert "may not read" in told and str(root) in told
    assert place.ctl(ANN, "get", "classes", "/of-ann").stdout.split()[-1] == "d"
    # And by the classes of it.
    label = {"label": "parent_dir", "classes": {"from": "of-ann"}}
    files = {"root": str(place.dataset("own", owner=BOB)), "pattern": "**", **label}
    told = place.apply(BOB, place.pipeline("borrowing", "", source={"files": files}))
    assert "may not read" in told and str(root) in told


def test_a_closed_file_is_read_by_its_owner_alone(place: Place) -> None:
    root = place.dataset("mixed", owner=ANN)
    secret = root / "d" / "5"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    path = place.pipeline("mixed", root)
    assert place.apply(0, path) == ""
    assert place.consume(ANN, "mixed") == ""
    told = place.consume(BOB, "mixed")
    assert f"uid {BOB}" in told and f"may not read {secret}" in told
    assert SECRET not in told + place.daemon.log()


def test_what_a_cache_keeps_is_served_only_to_those_who_may_read_the_file(place: Place) -> None:
    root = place.dataset("kept", owner=ANN)
    secret = root / "d" / "5"
    secret.chmod(0o600)
    for path in (root / "d").iterdir():  # so old that a change would show
        os.utime(path, (1_600_000_000, 1_600_000_000))
    path = place.pipeline("kept", root, cache={"where": "ram", "form": "encoded", "size": "1MiB"})
    assert place.apply(0, path) == ""
    assert place.consume(ANN, "kept", "--job", "fill") == ""
    assert place.consume(ANN, "kept", "--job", "again") == ""
    assert f"may not read {secret}" in place.consume(BOB, "kept", "--job", "fill")


def test_a_step_is_shown_to_those_who_see_the_job_and_may_read_its_data() -> None:
    with contextlib.closing(Place({"access": {"admins": [str(BOB)]}})) as place:
        root = place.dataset("private", owner=ANN, mode=0o700)
        assert place.apply(ANN, place.pipeline("private", root)) == ""
        create = ("job", "create", "run", "--pipeline", "private", "--shards", "2")
        assert place.ctl(ANN, *create).returncode == 0
        step = ("show", "run", "--step", "0/3", "--shard", "1")
        for user in (ANN, 0):
            shown = place.ctl(user, *step, "-o", "json")
            [row] = json.loads(shown.stdout)["rows"]
            assert row["uri"] == f"d/{row['item']}"
        assert "there is no job 'run'" in place.ctl(ANN + 7, *step).stderr
        as_admin = place.ctl(BOB, *step).stderr
        assert f"uid {BOB}" in as_admin and f"may not read {root}" in as_admin


def test_status_names_no_data_of_another_users_cache(place: Place) -> None:
    root = place.dataset("private", owner=ANN, mode=0o700)
    path = place.pipeline("cached", root, cache={"form": "encoded", "size": "1MiB"})
    assert place.apply(ANN, path) == ""
    assert SECRET not in place.consume(ANN, "cached")
    for user, named in ((ANN, True), (BOB, False), (0, True)):
        shown = place.ctl(user, "status").stdout
        assert "encoded" in shown
        assert (str(root) in shown) == named, shown


def test_a_group_of_the_callers_counts_for_as_long_as_they_have_it(place: Place) -> None:
    root = place.dataset("shared", owner=ANN, mode=0o750, group=MEMBERS)
    path = place.pipeline("shared", root)
    assert "may not read" in place.apply(BOB, path, [OTHERS])
    assert place.apply(BOB, path, [OTHERS, MEMBERS]) == ""
    assert place.consume(BOB, "shared", groups=[MEMBERS]) == ""
    assert "may not read" in place.consume(BOB, "shared")


def test_an_acl_allows_and_denies_as_the_kernel_does(place: Place) -> None:
    closed = place.dataset("by-acl", owner=ANN, mode=0o700)
    set_acl(closed, *acl_for(BOB, 5, 0))
    assert place.apply(BOB, place.pipeline("allowed", closed)) == ""
    assert place.consume(BOB, "allowed") == ""
    open_to_all = place.dataset("denied", owner=ANN)
    denied = open_to_all / "d" / "3"
    set_acl(denied, *acl_for(BOB, 0, 4))
    assert place.apply(0, place.pipeline("denied", open_to_all)) == ""
    assert place.consume(ANN, "denied") == ""
    assert f"may not read {denied}" in place.consume(BOB, "denied")
    set_acl(open_to_all, *acl_for(BOB, 0, 5))
    assert "may not" in place.consume(BOB, "denied")


def test_a_link_opens_no_way_that_is_closed(place: Place) -> None:
    closed = place.dataset("private", owner=ANN, mode=0o700)
    root = place.dataset("links", owner=BOB)
    (root / "d" / "way").symlink_to(closed / "d" / "1")
    told = place.apply(BOB, place.pipeline("links", root))
    assert f"may not pass {closed}" in told


def test_the_daemons_own_and_the_kernels_files_are_nobodys_data(place: Place) -> None:
    daemon = place.daemon
    # Something to find.
    assert place.apply(ANN, place.pipeline("first", place.dataset("any", owner=ANN))) == ""
    roots = [daemon.state_dir, daemon.runtime_dir, "/proc/self/fd", "/proc", "/sys", "/dev"]
    for number, root in enumerate(roots):
        path = place.pipeline(f"nosy-{number}", root)
        for user in (BOB, 0):
            told = place.apply(user, path)
            assert "cannot list" in told or "no file below" in told, (root, told)
            assert "SQLite" not in told
    # From above, they are left out.
    told = place.apply(0, place.pipeline("above", daemon.state_dir.parent))
    assert told == ""
    listed = place.ctl(0, "get", "pipelines", "above", "-o", "json").stdout
    names = [path for path in daemon.state_dir.parent.iterdir() if path.is_file()]
    assert json.loads(listed)["items"] == len(names) if listed.startswith("{") else True


def test_a_hard_link_into_the_state_is_refused_by_the_callers_rights(place: Place) -> None:
    place.apply(ANN, place.pipeline("token", place.dataset("any", owner=ANN)))
    root = place.daemon.directory / "links"
    root.mkdir(mode=0o755)
    os.link(place.daemon.state_dir / "spdld.sqlite", root / "mine")
    assert f"may not read {root / 'mine'}" in place.apply(BOB, place.pipeline("linked", root))


def test_no_message_quotes_a_file_that_is_only_named(place: Place) -> None:
    hidden = place.directory / "hidden"
    hidden.write_text(f"{SECRET}\n/{SECRET}\n")
    root = place.dataset("any", owner=BOB)
    label = {"root": str(root), "pattern": "**", "label": "parent_dir", "classes": str(hidden)}
    extending = place.pipeline("extending", root, extends=str(hidden))
    classes = place.pipeline("classes", root, source={"files": label})
    for mode in (0o600, 0o644):
        hidden.chmod(mode)
        for user in (BOB, 0):
            for path in (extending, classes):
                told = place.apply(user, path)
                assert str(hidden) in told, (mode, user, told)
                assert "secret" not in told + place.daemon.log()
                assert (mode == 0o600 and user == BOB) == ("may not read" in told), told
    shadow = place.pipeline("shadow", root, extends="/etc/shadow")
    told = place.apply(BOB, shadow)
    assert "may not read /etc/shadow" in told and "root:" not in told


def test_a_restart_goes_on_with_the_rights_that_were_asked_before(place: Place) -> None:
    root = place.dataset("kept", owner=ANN, mode=0o750, group=MEMBERS)
    assert place.apply(BOB, place.pipeline("kept", root), [MEMBERS]) == ""
    made = place.ctl(BOB, "job", "create", "run", "--pipeline", "kept", groups=[MEMBERS])
    assert made.returncode == 0, made.stderr
    place.daemon.kill()
    place.daemon.start()
    assert place.consume(BOB, "kept", "--job", "run", groups=[MEMBERS]) == ""
    # Whoever comes is asked anew.
    assert "may not read" in place.consume(BOB, "kept", "--job", "run")
    root.chmod(0o700)
    place.daemon.kill()
    place.daemon.start()
    assert f"may not read {root}" in place.daemon.log()
    assert place.consume(BOB, "kept", "--job", "run", groups=[MEMBERS]) != ""


def test_a_job_goes_on_with_the_rights_of_those_who_read_it(place: Place) -> None:
    root = place.dataset("grouped", owner=ANN, mode=0o750, group=MEMBERS)
    assert place.apply(0, place.pipeline("grouped", root)) == ""
    groups = [MEMBERS, OTHERS]
    made = place.ctl(BOB, "job", "create", "run", "--pipeline", "grouped", groups=[MEMBERS])
    assert made.returncode == 0, made.stderr
    assert place.consume(BOB, "grouped", "--job", "run", groups=groups) == ""


def test_an_administrator_opens_a_root_to_a_group() -> None:
    directory = pathlib.Path(tempfile.mkdtemp(prefix="spdld-wide-", dir="/tmp"))
    wide = directory / "wide"
    settings = {"access": {"roots": ["/", {"path": str(wide), "groups": [MEMBERS]}]}}
    directory.chmod(0o755)
    wide.mkdir(mode=0o700)
    with contextlib.closing(Place(settings)) as place:
        os.chown(wide, ANN, ANN)
        (wide / "a").write_text("text")
        (wide / "a").chmod(0o600)
        path = place.pipeline("wide", wide)
        assert "may not read" in place.apply(BOB, path)
        assert place.apply(BOB, path, [MEMBERS]) == ""
        assert place.consume(BOB, "wide", groups=[MEMBERS]) == ""
    shutil.rmtree(directory)


EXCHANGE = """
import ctypes, os, sys
renameat2 = ctypes.CDLL(None).renameat2
pairs = [argument.encode().split(b":") for argument in sys.argv[1:]]
while True:
    for directory, first, second in pairs:
        renameat2(int(directory), first, int(directory), second, 2)  # RENAME_EXCHANGE
"""


@contextlib.contextmanager
def exchanging(*pairs: tuple[pathlib.Path, str, str]) -> Iterator[None]:
    """Exchanges two names of each directory for as long as the context lasts."""
    # By descriptor: a path could lead to another directory by then, and move its files in here.
    directories = [os.open(directory, os.O_PATH) for directory, *_ in pairs]
    process = subprocess.Popen(
        [sys.executable, "-c", EXCHANGE]
        + [
            f"{fd}:{first}:{second}"
            for fd, (_, first, second) in zip(directories, pairs, strict=True)
        ],
        pass_fds=directories,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
        for directory in directories:
            os.close(directory)


def test_nothing_outside_of_the_roots_is_read_while_names_are_exchanged() -> None:
    directory = pathlib.Path(tempfile.mkdtemp(prefix="spdld-race-", dir="/tmp"))
    directory.chmod(0o755)
    allowed, outside = directory / "in", directory / "out"
    for root, text in ((allowed / "x", "mine"), (outside, SECRET)):
        (root / "d").mkdir(parents=True)
        for index in range(8):
            (root / "d" / str(index)).write_text(text)
    (allowed / "way").symlink_to(outside)
    (allowed / "x" / "link").symlink_to(outside / "d" / "0")
    with contextlib.closing(Place({"access": {"roots": [str(allowed)]}})) as place:
        paths = [
            place.pipeline(
                f"race-{links}",
                "",
                source={
                    "files": {
                        "root": str(allowed / "x"),
                        "pattern": "d/?",
                        "follow_symlinks": links,
                    }
                },
                shuffle="none",
                batch={"size": 8, "max_bytes": "64KiB"},
            )
            for links in (False, True)
        ]

        def digests(user: int, name: str) -> set[str]:
            done = place.ctl(user, "consume", name, "--epochs", "1", "--digest")
            return {line.split()[-1] for line in done.stdout.splitlines() if line[:1].isdigit()}

        assert place.apply(BOB, paths[0]) == ""
        right = digests(BOB, paths[0].stem)
        assert len(right) == 1
        served = 0
        with exchanging((allowed, "x", "way"), (allowed / "x", "d/0", "link")):
            for attempt in range(RACES):
                user = (BOB, 0)[attempt // 2 % 2]
                path = paths[attempt % 2]
                place.ctl(user, "apply", "-f", path)
                seen = digests(user, path.stem)
                assert seen <= right
                served += len(seen)
        assert RACES < 1000 or served > 0
    shutil.rmtree(directory)

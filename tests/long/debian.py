#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: the Debian packages in a root of Debian 12 under systemd: install, read, a user's own service, upgrade amid training, purge
"""debian.py [PACKAGES]: in a root of its own, made by debootstrap, under systemd-nspawn; as root.

PACKAGES: what `./dev package deb` has made (build/package), and makes first if it is not given. The
packages that the root needs come from the machine's own sources. The root is kept in build/roots for
the next run. It prints figures, and fails with the line that did not hold.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from roots import (
    BATCH,
    ITEMS,
    REPOSITORY,
    Node,
    base,
    booted,
    check,
    copy_of,
    in_chroot,
    run,
    take_packages,
    write_pipeline,
)

RANKS, EPOCHS = 2, 6
CONSUMED = 30  # epochs of a third one
MOST_EXPOSED = 2.0  # by systemd-analyze security: of 10
LONGEST_GAP_S = 5.0
# What stays when all is purged: the daemon's user, whose files may lie anywhere.
STAYS = {f"/etc/{name}" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")}
# Prints a line for each batch: the time, its epoch and its items.
READ = """
import json, sys, time, spdld
rank, world, epochs = map(int, sys.argv[1:])
with spdld.Loader("images", job="run", rank=rank, world_size=world) as loader:
    for epoch in range(epochs):
        for batch in loader:
            print(json.dumps([time.monotonic(), epoch, batch.indices.tolist()]), flush=True)
            time.sleep(0.04)
"""
# Prints how many rows an epoch of the file has, and who served it.
READ_OWN = """
import sys, spdld
with spdld.Loader(sys.argv[1], launch=True) as loader:
    print(sum(batch.rows for batch in loader), loader.address)
"""


def packages(arguments: list[str]) -> pathlib.Path:
    """The folder that has them, which is given or made."""
    if arguments:
        return pathlib.Path(arguments[0]).resolve()
    subprocess.run([REPOSITORY / "dev", "package", "deb"], check=True)
    return REPOSITORY / "build/package"


def newer(package: pathlib.Path, to: pathlib.Path) -> None:
    """The same package under a higher version."""
    tree = to / "tree"
    run("dpkg-deb", "--raw-extract", package, tree)
    control = tree / "DEBIAN/control"
    version = run("dpkg-deb", "--field", package, "Version").strip()
    # Also where one depends on another.
    control.write_text(control.read_text().replace(version, f"{version}.1"))
    run("dpkg-deb", "--root-owner-group", "--build", tree, to / f"newer-{package.name}")
    shutil.rmtree(tree)


def files_of(root: pathlib.Path) -> dict[str, tuple[int, int]]:
    """All below these, with size and time."""
    found = {}
    for top in ("etc", "usr", "lib", "var/lib", "run"):
        for directory, _, names in os.walk(root / top):
            for name in names:
                path = pathlib.Path(directory, name)
                state = path.lstat()
                found["/" + str(path.relative_to(root))] = (state.st_size, state.st_mtime_ns)
    return found


def exposed(node: Node, *analyze: str, user: str = "") -> float:
    """As systemd-analyze security says, of 10."""
    return float(re.findall(r"exposure level.*: ([\d.]+)", node.run(*analyze, user=user))[0])


def read_confined(node: Node, environment: tuple[str, ...], file: str, own: str) -> None:
    """By the same user's service in a user namespace, files of a group of the user's, too."""
    node.run(*environment, "spdlctl", "service", "install", "--confined", user="owner")
    analyze = ("systemd-analyze", "--user", "security", "--no-pager", "spdld.service")
    level = exposed(node, *environment, *analyze, user="owner")
    check(level <= MOST_EXPOSED, f"of a confined service it says {level}")
    pid = node.run(
        *environment, "systemctl", "--user", "show", "-P", "MainPID", "spdld", user="owner"
    ).strip()
    inside = ("nsenter", "-t", pid, "-U", "-m", "--preserve-credentials", "touch")
    for path in ("/home/owner/written", "/var/tmp/written"):
        told = node.say(*node.as_user("owner", *inside, path))
        check("Read-only file system" in told, f"which cannot write {path}")
    node.run(*node.as_user("owner", *inside, "/home/owner/.local/state/spdld/written"))
    for mode, owner in (("g=rX,o=", "root:shared"), ("g=,o=", "owner:owner")):
        node.run("chown", "--recursive", owner, "/home/owner/images")
        node.run("chmod", "--recursive", mode, "/home/owner/images")
        read = node.run(*environment, "python3", "-c", READ_OWN, file, user="owner")
        check(read == f"{ITEMS} {own}\n", f"and reads what {owner} alone may read")


def read_by_own_service(node: Node, root: pathlib.Path) -> None:
    """By a user who is not let into the system's daemon."""
    file = write_pipeline(node, root, "owner")
    node.run("groupadd", "shared")
    node.run("usermod", "--append", "--groups", "shared", "owner")
    node.run("loginctl", "enable-linger", "owner")
    uid = node.run("id", "-u", "owner").strip()
    own = f"/run/user/{uid}/spdld-{uid}"
    environment = ("env", f"XDG_RUNTIME_DIR=/run/user/{uid}")
    deadline = time.monotonic() + 60
    while "running" not in node.say("systemctl", "is-active", f"user@{uid}") + node.say(
        *node.as_user("owner", *environment, "systemctl", "--user", "is-system-running")
    ):
        if time.monotonic() > deadline:
            raise SystemExit("FAILED: " + node.say("journalctl", "--no-pager", "-n", "50"))
        time.sleep(0.2)
    fails = (*environment, "SPDLD_BIN=/bin/false", "spdlctl", "service", "install", "--confined")
    told = node.say(*node.as_user("owner", *fails))
    check(
        "; its units are removed again" in told, "an install whose start fails says what it undid"
    )
    units = ("systemctl", "--user", "list-unit-files", "--no-legend", "spdld*")
    check(node.say(*node.as_user("owner", *environment, *units)) == "", "and leaves no unit")
    told = node.run(*environment, "spdlctl", "service", "install", user="owner")
    check(f"serves in {own}, from the first connection on" in told, "a user installs a service")
    check("(lingering is on)" in told and "The system's" not in told, "and is told how it lives")
    unit = ("systemctl", "--user", "is-active", "spdld.service")
    check("inactive" in node.say(*node.as_user("owner", *environment, *unit)), "nobody needs it")
    read = node.run(*environment, "python3", "-c", READ_OWN, file, user="owner")
    check(read == f"{ITEMS} {own}\n", "a loader with launch=True reads through it")
    check(node.run(*environment, *unit, user="owner") == "active\n", "which starts it")
    log = node.run("journalctl", "--no-pager", "_SYSTEMD_USER_UNIT=spdld.service")
    check(" serves in " in log and "arning" not in log, "its log has no warning")
    analyze = ("systemd-analyze", "--user", "security", "--no-pager", "spdld.service")
    print(f"systemd-analyze security says {exposed(node, *environment, *analyze, user='owner')}")
    read_confined(node, environment, file, own)
    with_group = ("runuser", "-u", "owner", "-G", "spdld", "--", *environment)
    told = node.run(*with_group, "HOME=/home/owner", "spdlctl", "service", "status")
    check("The system's spdld answers at /run/spdld" in told, "who may use both is told of both")
    node.run(*environment, "spdlctl", "service", "remove", user="owner")
    check(not (root / "home/owner/.config/systemd/user/spdld.service").exists(), "it is removed")
    read = node.run(*environment, "python3", "-c", READ_OWN, file, user="owner")
    check(read == f"{ITEMS} {own}\n", "launch=True starts one there again")
    while "No such file" not in node.say("ls", own):
        time.sleep(0.2)  # it leaves 2 s after its last loader, and takes the directory with it
    node.run("loginctl", "disable-linger", "owner")
    node.run("systemctl", "stop", f"user@{uid}")
    node.run("userdel", "--remove", "owner")
    node.run("groupdel", "shared")


def read_amid_upgrade(node: Node, packages: list[str]) -> None:
    ranks = [
        node.begin("python3", "-c", READ, str(rank), str(RANKS), str(EPOCHS))
        for rank in range(RANKS)
    ]
    # It stops at its full pipe until that is read, which is after the upgrade.
    consumer = node.begin("spdlctl", "consume", "images", "--digest", "--epochs", str(CONSUMED))
    for rank in ranks:
        assert rank.stdout is not None
        rank.stdout.readline()
    pid = node.run("systemctl", "show", "-P", "MainPID", "spdld")
    node.run("apt-get", "install", "--yes", "--quiet", *packages)
    check(node.run("systemctl", "show", "-P", "MainPID", "spdld") != pid, "the upgrade restarts it")
    rows: collections.Counter[tuple[int, int]] = collections.Counter()
    longest = 0.0
    for rank in ranks:
        out, _ = rank.communicate()
        check(rank.returncode == 0, f"a rank reads on through it ({len(out.splitlines())} batches)")
        batches = [json.loads(line) for line in out.splitlines()]
        for before, batch in itertools.pairwise(batches):
            longest = max(longest, batch[0] - before[0])
        for _, epoch, items in batches:
            rows.update((epoch, item) for item in items)
    out, _ = consumer.communicate()
    steps = {tuple(line.split()[:2]) for line in out.splitlines()}
    check(
        consumer.returncode == 0
        and len(out.splitlines()) == len(steps) == CONSUMED * ITEMS // BATCH,
        f"so does spdlctl consume: {len(steps)} batches",
    )
    first = BATCH * RANKS  # those whose lines were read above
    check(
        sum(rows.values()) == EPOCHS * ITEMS - first and set(rows.values()) == {1},
        f"each row came once: {sum(rows.values())} + {first} of {EPOCHS} x {ITEMS}",
    )
    check(longest <= LONGEST_GAP_S, f"the longest gap between two batches is {longest:.2f} s")


def main() -> int:
    made = packages(sys.argv[1:])
    root = copy_of(base(), "node")
    for package in take_packages(made, root):
        newer(package, root / "packages")
    in_chroot(root, "apt-get", "update", "--quiet")
    simulated = in_chroot(root, "sh", "-c", "apt-get install --simulate /packages/[!n]*.deb")
    others = set(re.findall(r"(?m)^Inst (\S+)", simulated)) - {
        "spdld", "libspdld0", "libspdld-dev", "python3-spdld"
    }  # fmt: skip
    # Of which the last gives users a manager.
    needed = (*sorted(others), "libpam-systemd")
    in_chroot(root, "apt-get", "install", "--yes", "--no-install-recommends", *needed)
    before = files_of(root)

    began = time.monotonic()
    told = in_chroot(root, "sh", "-c", "apt-get install --yes /packages/[!n]*.deb")
    check("usermod -a -G spdld USER" in told, "apt says how users come to it")
    print(f"installed in {time.monotonic() - began:.1f} s, beside {len(others)} other packages")
    with booted(root) as node:
        check(node.run("systemctl", "is-active", "spdld") == "active\n", "the service is active")
        log = node.run("journalctl", "--no-pager", "-u", "spdld")
        check("arning" not in log, "its log has no warning")
        level = exposed(node, "systemd-analyze", "security", "spdld.service", "--no-pager")
        check(level <= MOST_EXPOSED, f"systemd-analyze security says {level}")
        file = write_pipeline(node, root, "trainer")
        node.run("usermod", "--append", "--groups", "spdld", "trainer")
        node.run("spdlctl", "apply", "-f", file, user="trainer")
        began = time.monotonic()
        node.run("python3", "-c", READ, "0", "1", "1", user="trainer")
        print(f"a plain user reads an epoch in {time.monotonic() - began:.1f} s")
        read_by_own_service(node, root)
        edited = root / "etc/spdld/spdld.yaml"
        edited.write_text(edited.read_text() + "# edited\n")
        upgraded = [f"/packages/{path.name}" for path in (root / "packages").glob("newer-*.deb")]
        read_amid_upgrade(node, upgraded)
        check(edited.read_text().endswith("# edited\n"), "an edited configuration is kept")
        names = ("spdld", "libspdld0", "libspdld-dev", "python3-spdld")
        node.run("apt-get", "purge", "--yes", *names)
        node.run("userdel", "--remove", "trainer")
    left = {path for path, state in files_of(root).items() if before.get(path) != state}
    volatile = re.compile(
        r"/(var/lib/(dpkg|apt|systemd|private)|run|etc/machine-id|etc/ld.so.cache|.*/__pycache__)|.*-$"
    )
    left = {path for path in left if not volatile.match(path)} - STAYS
    check(not left, f"a purge leaves nothing: {sorted(left)}")
    check("spdld" in (root / "etc/passwd").read_text(), "but the user")
    return 0


if __name__ == "__main__":
    sys.exit(main())

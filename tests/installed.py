#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""installed.py PACKAGES: Debian packages are installed, served from, and purged under systemd; as root.

In this machine's own root under systemd-nspawn, whose changes go with it: what the packages need must be
installed here. Where no root can be booted, it says so in a line and ends with 0.
`./dev test long debian` does more, in a bare root.
"""

from __future__ import annotations

import pathlib
import sys

import roots
from roots import check

READ = """
import spdld
with spdld.Loader("images") as loader:
    print(next(iter(loader)).rows)
"""


def read_from_installed(made: pathlib.Path, root: pathlib.Path, node: roots.Node) -> None:
    packages = [f"/packages/{path.name}" for path in roots.take_packages(made, root)]
    node.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--install", *packages)
    check(node.run("systemctl", "is-active", "spdld") == "active\n", "the service is active")
    file = roots.write_pipeline(node, root, "trainer")
    node.run("usermod", "--append", "--groups", "spdld", "trainer")
    node.run("spdlctl", "apply", "-f", file, user="trainer")
    read = node.run("/usr/bin/python3", "-c", READ, user="trainer")
    check(read == f"{roots.BATCH}\n", "a plain user reads a batch by python3-spdld")
    names = [pathlib.Path(path).name.partition("_")[0] for path in packages]
    node.run("dpkg", "--purge", *names)
    left = [path for path in ("var/lib/spdld", "run/spdld", "etc/spdld") if (root / path).exists()]
    check(not left, f"a purge leaves nothing: {left}")


def main() -> int:
    try:
        with roots.over_this_machine() as root:
            # By which images of containers keep packages from starting services.
            (root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
            with roots.booted(root, "sysinit.target") as node:
                read_from_installed(pathlib.Path(sys.argv[1]), root, node)
    except roots.CannotBoot as why:
        print(f"left out: no system can be booted here to install the packages in: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

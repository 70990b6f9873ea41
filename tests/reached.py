# SPDX-License-Identifier: Apache-2.0
"""Which sources of the product a change can reach: those that were changed, and those that include
what was, however far below. All of them where the change is of what says how sources are read.

    tests/reached.py COMMIT FILE...

Prints those of the files that what differs from COMMIT can reach. A file is a source, or a unit of
compilation, which includes sources.
"""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys

import check_includes

# From where an include in quotes is looked for, beside the folder of the file that includes.
ROOTS = ("server", "client", "client/cpp/src", "client/cpp/include", "proto", "common", "")
HOW_TO_READ = re.compile(r"\.clang-tidy|dev|CMakePresets\.json|(.*/)?CMakeLists\.txt|cmake/.*")


def changed_since(root: pathlib.Path, commit: str) -> set[str]:
    """Files that differ from the commit, those that git does not know yet among them."""
    git = ["git", "-C", str(root)]
    known = subprocess.check_output([*git, "diff", "--name-only", commit, "--"], text=True)
    new = subprocess.check_output([*git, "ls-files", "--others", "--exclude-standard"], text=True)
    return {*known.split("\n"), *new.split("\n")} - {""}


def reached(root: pathlib.Path, changed: set[str]) -> list[str]:
    includers: dict[str, set[str]] = collections.defaultdict(set)
    for include in check_includes.includes_of(root):
        if include.quoted or include.target.startswith("spdld/"):
            file = include.file.as_posix()
            for place in (include.file.parent.as_posix(), *ROOTS):
                includers[(pathlib.PurePosixPath(place) / include.target).as_posix()].add(file)
    sources = {
        path.relative_to(root).as_posix()
        for top in ("server", "client")
        for path in (root / top).rglob("*.cpp")
    }
    if any(HOW_TO_READ.fullmatch(file) for file in changed):
        return sorted(sources)
    # The headers that are made of a .proto are named like it.
    waiting = [file.replace(".proto", suffix) for file in changed for suffix in (".proto", ".pb.h")]
    waiting += [file.replace(".proto", ".grpc.pb.h") for file in changed]
    found: set[str] = set()
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting.extend(includers.get(file, ()))
    return sorted(found & sources)


def holds(root: pathlib.Path, file: pathlib.Path, sources: set[str]) -> bool:
    """Whether the file is one of the sources, or a unit that includes one of them."""
    if file.is_relative_to(root) and file.relative_to(root).as_posix() in sources:
        return True
    included = re.findall(r'^#include "(.*)"$', file.read_text(), re.MULTILINE)
    return not sources.isdisjoint(included)


def main(arguments: list[str]) -> None:
    root = pathlib.Path(__file__).resolve().parent.parent
    commit, *files = arguments
    sources = set(reached(root, changed_since(root, commit)))
    for file in files:
        if holds(root, pathlib.Path(file).resolve(), sources):
            print(file)


if __name__ == "__main__":
    main(sys.argv[1:])

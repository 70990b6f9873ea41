# SPDX-License-Identifier: Apache-2.0
"""Adds up JUnit files: how many tests ran, and the names of those that did not pass."""

from __future__ import annotations

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def summarize(path: pathlib.Path) -> tuple[int, list[str], list[str], float]:
    """(tests run, failed names, skipped names, seconds)."""
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    failed = [
        case.get("name", "?")
        for case in cases
        if case.find("failure") is not None
        or case.find("error") is not None
        or case.get("status") == "fail"
    ]
    skipped = [case.get("name", "?") for case in cases if case.find("skipped") is not None]
    seconds = sum(float(case.get("time", 0)) for case in cases)
    return len(cases) - len(skipped), failed, skipped, seconds


def main(paths: list[str]) -> None:
    for path in map(pathlib.Path, paths):
        if not path.exists():
            continue
        count, failed, skipped, seconds = summarize(path)
        noun = "programs" if path.stem == "ctest" else "tests"
        print(
            f"{path.stem}: {count} {noun} in {seconds:.0f} s, {len(failed)} failed,"
            f" {len(skipped)} skipped"
        )
        for name in failed:
            print(f"  FAILED  {name}")
        for name in skipped:
            print(f"  skipped {name}")


if __name__ == "__main__":
    main(sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""What took longest: the units of compilation and the tests of build directories.

    tests/slowest.py COUNT BUILD_DIR...

Reads ninja's log, and the JUnit files of GoogleTest's programs and of pytest, as the last build and the
last run of each left them.
"""

from __future__ import annotations

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

Times = list[tuple[float, str]]  # seconds, name


def units(build_dir: pathlib.Path) -> Times:
    log = build_dir / ".ninja_log"
    if not log.exists():
        return []
    # Start, end (ms), time of modification, output, hash: of each output the last line counts.
    lines = [line.split("\t") for line in log.read_text().splitlines() if not line.startswith("#")]
    last = {fields[3]: (int(fields[1]) - int(fields[0])) / 1000 for fields in lines}
    return [
        (seconds, output.replace("CMakeFiles/", "").replace(".dir/", "/"))
        for output, seconds in last.items()
        if output.endswith((".o", ".gch", ".pch"))
    ]


def tests(build_dir: pathlib.Path) -> Times:
    found = []
    for path in [*build_dir.glob("gtest/*.xml"), build_dir / "pytest.xml"]:
        if not path.exists():
            continue
        try:
            # GoogleTest writes a parameter's bytes as they are.
            text = path.read_text(encoding="utf-8", errors="replace")
            cases = ElementTree.fromstring(text).iter("testcase")
        except ElementTree.ParseError:  # of a program that was killed
            print(f"{path} cannot be read")
            continue
        for case in cases:
            name = f"{case.get('classname', '')}.{case.get('name', '')}"
            found.append((float(case.get("time", 0)), name))
    return found


def show(noun: str, times: Times, count: int) -> None:
    if not times:
        return
    print(f"slowest {noun}, of {len(times)} that took {sum(time for time, _ in times):.0f} s:")
    for seconds, name in sorted(times, reverse=True)[:count]:
        print(f"  {seconds:7.1f} s  {name}")


def main(arguments: list[str]) -> None:
    count = int(arguments[0])
    build_dirs = [pathlib.Path(argument) for argument in arguments[1:]]
    for noun, of in (("units", units), ("tests", tests)):
        show(
            noun,
            [
                (seconds, f"{build_dir.name}: {name}")
                for build_dir in build_dirs
                for seconds, name in of(build_dir)
            ],
            count,
        )


if __name__ == "__main__":
    main(sys.argv[1:])

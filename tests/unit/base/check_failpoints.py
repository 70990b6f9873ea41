# SPDX-License-Identifier: Apache-2.0
"""Holds the list of failpoints against the places that name them and against a built daemon.

Each point of base/failpoint.h stands somewhere below --source, or a test that asks for it would
wait for ever; and a daemon that is shipped has none of them, neither code nor names.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys

TABLE = re.compile(r'Point\{"([a-z.]+)", (?:true|false)\}')
PLACE = re.compile(r'SPDLD_FAILPOINT(?:_ERRNO|_STATUS)?\("([a-z.]+)"\)')


def problems(source: pathlib.Path, program: pathlib.Path, built_in: bool) -> list[str]:
    header = source / "base/failpoint.h"
    declared = TABLE.findall(header.read_text())
    if not declared:
        return [f"no point is found in {header}"]
    placed = {
        name
        for path in source.rglob("*.cpp")
        for name in PLACE.findall(path.read_text())
        if path.stem != "failpoint"
    }
    found = [
        f"'{name}' is in failpoint.h and at no place" for name in declared if name not in placed
    ]
    found += [f"'{name}' is at a place and not in failpoint.h" for name in placed - set(declared)]

    binary = program.read_bytes()
    # Debug information would tell of our sources' names: what is asked for is what the code needs.
    traces = [*declared, "SPDLD_FAILPOINTS: '"]
    for trace in traces:
        if (trace.encode() in binary) != built_in:
            state = "lacks" if built_in else "has a trace of its failpoints:"
            found.append(f"{program.name} {state} '{trace}'")
    if (b"9failpoint" in binary) != built_in:  # as C++ writes the namespace into symbols
        found.append(f"{program.name}: its symbols of failpoints are not as they should be")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True, help="the folder server/")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="the daemon")
    parser.add_argument("--built-in", required=True, help="ON, or what CMake takes for OFF")
    options = parser.parse_args()
    found = problems(options.source, options.program, options.built_in == "ON")
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

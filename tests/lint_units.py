# SPDX-License-Identifier: Apache-2.0
"""Puts sources of the product together into units that clang-tidy reads: what it reads of a source is
nearly all headers, which a unit has once for all of its sources.

    tests/lint_units.py BUILD_DIR SIZE

BUILD_DIR is configured, each source for itself. Writes the units and how they are compiled, into
BUILD_DIR/lint, and prints their paths. A unit has up to SIZE sources of one floor, and sees the
definitions and the include directories of all of that floor's. What Highway includes again for each
instruction set is a unit of its own.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import shlex
import sys

FLOORS = ("server", "client/cpp", "client/ctl")
ROOT = pathlib.Path(__file__).resolve().parent.parent


def how_to_read(command: str) -> list[str]:
    """The options of a compiler's command that say what a source means."""
    found = []
    words = iter(shlex.split(command))
    for word in words:
        if word == "-isystem":
            found.append(f"-isystem{next(words)}")
        elif word.startswith(("-D", "-I", "-std=", "-mssse3")):
            found.append(word)
    return found


def units(sources: dict[str, list[str]], size: int) -> list[tuple[list[str], list[str]]]:
    """The sources of each unit and the options that they are read with."""
    made = []
    for floor in FLOORS:
        together = []
        for source, options in sources.items():
            if source.startswith(f"{floor}/"):
                if "_kernels" in source:
                    made.append(([source], options))
                else:
                    together.append(source)
        every = list(dict.fromkeys(itertools.chain(*(sources[source] for source in together))))
        made += [(together[first : first + size], every) for first in range(0, len(together), size)]
    return made


def main(arguments: list[str]) -> None:
    build_dir = pathlib.Path(arguments[0]).resolve()
    sources: dict[str, list[str]] = {}
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        # What is compiled twice, with other definitions, is read once.
        if path.is_relative_to(ROOT) and not path.is_relative_to(build_dir):
            sources.setdefault(path.relative_to(ROOT).as_posix(), how_to_read(entry["command"]))
    out = build_dir / "lint"
    out.mkdir(exist_ok=True)
    commands = []
    for number, (together, options) in enumerate(units(sources, int(arguments[1]))):
        path = out / f"unit_{number}.cpp"
        path.write_text("".join(f'#include "{source}"\n' for source in together))
        command = ["clang++-14", *options, f"-I{ROOT}", "-c", str(path)]
        commands.append({"directory": str(out), "file": str(path), "arguments": command})
        print(path)
    (out / "compile_commands.json").write_text(json.dumps(commands, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])

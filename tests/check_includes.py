# SPDX-License-Identifier: Apache-2.0
"""Checks that includes point one way: every folder sees only the folders below it, and each heavy
library stays in the one folder that owns it.

    tests/check_includes.py [ROOT]

Prints `file:line: what` for each breach and exits 1 if there is one.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
from collections.abc import Iterator

# Each set may include those above it, and nothing beside it.
LAYERS = [
    {"base"},
    {"op"},
    {"spec", "source", "media", "transform", "delivery"},
    {"engine", "job"},
    {"pipeline", "store"},
    {"stream"},
    {"session"},
    {"control", "observe"},
]
RANK = {folder: rank for rank, layer in enumerate(LAYERS) for folder in layer}

# The rooms of a folder, and which others of that folder each may include. "" is the folder itself:
# what lies beside its rooms.
ROOMS: dict[str, dict[str, set[str]]] = {
    "delivery": {"": set(), "cuda": {""}, "runners": {""}},
    "ctl": {
        "": set(),
        "init": {""},
        "show": {""},
        "complete": {""},
        "program": {""},
        "service": {"", "program"},
        "command": {"", "init", "show", "complete", "program", "service"},
    },
    "base": {"text": set(), "": {"text"}, "memory": {""}, "users": {""}},
    "transform": {
        "params": set(),
        "scratch": set(),
        "image": {"params", "scratch"},
        "sound": {"params", "scratch"},
        "": {"image", "sound"},
    },
    "engine": {"plan": set(), "cache": {"plan"}, "": {"plan", "cache"}},
    "source": {
        "bytes": set(),
        "item": {"bytes"},
        "select": {"bytes", "item"},
        "order": {"bytes", "item"},
        "file": {"bytes", "item"},
        "listing": {"bytes", "file"},
        "media_index": {"bytes", "item", "file"},
        "tar": {"bytes", "item", "file", "listing", "select"},
        "table": {"bytes", "item", "file", "listing"},
        "clips": {"bytes", "item", "file", "media_index"},
        "kept": {"bytes", "item", "file", "listing", "media_index", "tar", "table"},
        "": {
            "bytes",
            "item",
            "select",
            "order",
            "file",
            "listing",
            "media_index",
            "tar",
            "table",
            "clips",
            "kept",
        },
    },
    "media": {
        "bytes": set(),
        "image": {"bytes"},
        "container": {"bytes"},
        "record": {"bytes"},
        "jpeg_scan": {"bytes", "image"},
        "format": {"bytes", "image", "container"},
        "video": {"container", "image", "jpeg_scan"},
        "audio": {"bytes", "container"},
        "jpeg": {"image", "jpeg_scan"},
        "probe": {"bytes", "container", "audio"},
        "": {"audio", "container", "format", "image", "jpeg", "jpeg_scan", "record", "video"},
    },
}

# Headers that only some folders may see, by the start of what is included.
OWNED = [
    ("yaml-cpp", r"yaml-cpp/", ("server/spec/",)),
    ("FFmpeg", r"libav\w+/|libsw\w+/", ("server/media/",)),
    ("libjpeg", r"(turbo)?jpeg(lib|int)?\.h", ("server/media/",)),
    ("libavif", r"avif/", ("server/media/",)),
    ("libwebp", r"webp/", ("server/media/",)),
    ("setjmp", r"setjmp\.h|csetjmp", ("server/media/",)),
    ("gRPC", r"grpc|.*\.pb\.h", ("server/control/", "client/ctl/")),
    ("Protobuf", r"google/protobuf/", ("server/control/", "client/ctl/")),
    (
        "CUDA",
        r"cuda|nvcuvid|nvjpeg",
        ("common/cuda/", "client/cpp/src/cuda/", "server/delivery/cuda/"),
    ),
    ("SQLite", r"sqlite3", ("server/store/",)),
    ("prometheus-cpp", r"prometheus/", ("server/observe/",)),
    ("libmicrohttpd", r"microhttpd", ("server/observe/",)),
]

# A folder of plain values: what it may include beside its own files and the standard library. It has
# no lock, no thread, no clock and no I/O.
VALUES = {
    "job": r"source/order/.+|op/.+|base/(check|status)\.h|base/text/.+|base/users/credentials\.h",
}
ACTIVE = (
    r"atomic|barrier|chrono|condition_variable|filesystem|fstream|future|iostream|latch|mutex|"
    r"semaphore|shared_mutex|stop_token|thread"
)

# The folders of common/.
COMMON = ("cuda/", "posix/")

SYSTEM = r"(sys|linux)/\w+\.h|(unistd|fcntl|poll|pthread|errno|signal|time|sched|dirent|fnmatch|grp|pwd)\.h"
STANDARD = r"[a-z_0-9]+"
INCLUDE = re.compile(r"""^\s*#\s*include\s*([<"])([^>"]+)[>"]""")


@dataclasses.dataclass(frozen=True)
class Include:
    file: pathlib.PurePath  # relative to the root
    line: int
    quoted: bool
    target: str


def folder_of(file: pathlib.PurePath) -> str:
    """The layer that a file below server/ belongs to: "" for main.cpp and daemon.*."""
    return file.parts[1] if len(file.parts) > 2 else ""


def room_of(parts: tuple[str, ...]) -> str:
    """The room that FOLDER/ROOM/FILE lies in: "" for FOLDER/FILE."""
    return parts[1] if len(parts) > 2 else ""


def room_breach(include: Include) -> str | None:
    """What is wrong with an include of a file of the same folder, or None."""
    theirs = pathlib.PurePath(include.target).parts
    mine = include.file.parts[1:]
    if not include.quoted or mine[0] != theirs[0] or mine[0] not in ROOMS or len(theirs) < 2:
        return None
    rooms, here, there = ROOMS[mine[0]], room_of(mine), room_of(theirs)
    for room in (here, there):
        if room not in rooms:
            return f"{mine[0]}/{room}/ has no row in ROOMS of tests/check_includes.py"
    if here == there or there in rooms[here]:
        return None
    return f"{mine[0]}/{here} may not include {mine[0]}/{there}: {include.target}"


def value_breach(include: Include) -> str | None:
    """What is wrong with an include of a file of a folder of plain values, or None."""
    folder, target = folder_of(include.file), include.target
    if include.file.parts[0] != "server" or folder not in VALUES:
        return None
    if include.quoted:
        good = target.startswith(f"{folder}/") or re.fullmatch(VALUES[folder], target)
    else:
        good = target == "sys/types.h" or (
            re.fullmatch(STANDARD, target) and not re.fullmatch(ACTIVE, target)
        )
    return None if good else f"{folder}/ holds plain values, without {target}"


def breach(include: Include) -> str | None:
    """What is wrong with one include, or None."""
    file, target = include.file, include.target
    place = file.as_posix()

    if (why := room_breach(include)) is not None:
        return why

    if (why := value_breach(include)) is not None:
        return why

    for library, pattern, owners in OWNED:
        if re.match(pattern, target) and not place.startswith(owners):
            return f"{library} belongs to {' and '.join(owners)}, not here: {target}"

    if file.parts[0] == "common":
        system = not include.quoted and re.fullmatch(
            f"{STANDARD}|{SYSTEM}|dlfcn.h|cuda\\w*.h", target
        )
        own = include.quoted and target.startswith(COMMON)
        return None if system or own else f"common/ needs libc and libstdc++ alone, not {target}"

    if file.parts[0] == "proto":
        return None if target == "cstdint" else f"proto/ includes <cstdint> alone, not {target}"

    if file.parts[:2] == ("client", "cpp"):
        if target.startswith("spdld/"):
            return None
        if include.quoted and ("/" not in target or target.startswith(COMMON)):
            return None  # its own src/, or common/
        if not include.quoted and re.fullmatch(f"{STANDARD}|{SYSTEM}", target):
            return None
        return f"libspdld needs libc, libstdc++ and proto/ alone, not {target}"

    if file.parts[0] == "client":
        if include.quoted and target.split("/")[0] in RANK and not target.startswith("base/"):
            return f"clients know proto/ and the server's base/ alone, not {target}"
        return None

    if file.parts[0] == "server":
        mine = RANK.get(folder_of(file))
        theirs_name = target.split("/")[0] if "/" in target else ""
        theirs = RANK.get(theirs_name)
        if not include.quoted or mine is None or theirs is None:
            return None
        if theirs_name == folder_of(file) or theirs < mine:
            return None
        kind = "its sibling" if theirs == mine else "the higher"
        return f"{folder_of(file)}/ includes {kind} {theirs_name}/: {target}"
    return None


def includes_of(root: pathlib.Path) -> Iterator[Include]:
    for top in ("proto", "common", "server", "client"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in {".h", ".cpp"} or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(text.splitlines(), start=1):
                if match := INCLUDE.match(line):
                    yield Include(
                        path.relative_to(root), number, match.group(1) == '"', match.group(2)
                    )


def check(root: pathlib.Path) -> list[str]:
    return [
        f"{include.file.as_posix()}:{include.line}: {why}"
        for include in includes_of(root)
        if (why := breach(include)) is not None
    ]


def main(arguments: list[str]) -> int:
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).parent.parent
    breaches = check(root)
    print("\n".join(breaches), end="\n" if breaches else "")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

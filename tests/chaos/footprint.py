# SPDX-License-Identifier: Apache-2.0
"""What a daemon has while nobody is attached, and what a run leaves on the machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator

import daemon as daemon_module
from integration.threads import threads_of

ARENA = "/memfd:spdld-arena"
# gRPC makes threads as calls come, and allocators keep what they had: neither grows with the blows.
SPARE_THREADS = 8
SPARE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class Footprint:
    descriptors: int  # but for arenas
    arenas: int
    mappings: int  # of arenas
    threads: int  # but for those that wait for storage, which come with need
    anonymous_bytes: int
    arena_bytes: int


def of_process(pid: int) -> Footprint:
    """What the kernel says, without a call to the daemon; arena_bytes is 0."""
    process = pathlib.Path(f"/proc/{pid}")
    links = []
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(descriptor))
    lines = (process / "status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    arenas = sum(link.startswith(ARENA) for link in links)
    return Footprint(
        descriptors=len(links) - arenas,
        arenas=arenas,
        mappings=(process / "maps").read_text().count(ARENA),
        threads=sum(not name.startswith("spdld-io-") for name in threads_of(pid)),
        anonymous_bytes=int(fields["RssAnon"].split()[0]) * 1024,
        arena_bytes=0,
    )


def measure(daemon: daemon_module.Daemon) -> Footprint:
    seen = of_process(daemon.pid)
    return dataclasses.replace(seen, arena_bytes=int(daemon.ctl_json("status")["arena_used"]))


def leaks(before: Footprint, after: Footprint, pooled: int, arena_bytes: int) -> list[str]:
    """What is more than it may be; `pooled` arenas of `arena_bytes` may wait for new consumers."""
    most = Footprint(
        descriptors=before.descriptors,
        arenas=before.arenas + pooled,
        mappings=before.mappings + pooled,
        threads=before.threads + SPARE_THREADS,
        anonymous_bytes=before.anonymous_bytes + SPARE_BYTES,
        arena_bytes=before.arena_bytes + pooled * arena_bytes,
    )
    had, has, may = (dataclasses.asdict(one) for one in (before, after, most))
    return [
        f"the daemon has {has[name]} {name}, and had {had[name]} before"
        for name in may
        if has[name] > may[name]
    ]


def processes_that_name(*directories: pathlib.Path) -> Iterator[str]:
    marks = [str(directory).encode() for directory in directories]
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if any(mark in command for mark in marks):
                yield f"{entry.name} {command.replace(bytes(1), b' ').decode(errors='replace')}"

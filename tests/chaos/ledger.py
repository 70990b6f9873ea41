# SPDX-License-Identifier: Apache-2.0
"""What ranks wrote down of the batches that they were handed, and what must hold of it.

A rank appends one line for each batch, after it has looked at every pixel of it and before it asks
for the next one. A rank that was killed goes on behind its last whole line, as a trainer goes on
from its checkpoint: so the lines of all lives of a rank are one story without gap or repetition.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
from collections.abc import Iterable
from typing import Any

StepAt = tuple[int, int]
TAIL_BYTES = 1 << 14  # more than two lines have


@dataclasses.dataclass(frozen=True)
class Entry:
    """One batch as it was handed out."""

    epoch: int
    step: int
    items: tuple[int, ...]  # of the valid rows
    version: int  # of the pipeline
    flipped: bool | None  # None: it has no valid row to tell by

    @property
    def at(self) -> StepAt:
        return (self.epoch, self.step)


@dataclasses.dataclass(frozen=True)
class Swap:
    """A job's change of pipeline that the daemon has confirmed."""

    at: StepAt
    version: int
    flipped: bool


def to_line(entry: Entry, state: dict[str, Any]) -> bytes:
    return json.dumps({**dataclasses.asdict(entry), "state": state}).encode() + b"\n"


def _whole_lines(path: pathlib.Path) -> bytes:
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1]


def _entry(line: bytes) -> Entry:
    fields = json.loads(line)
    del fields["state"]
    fields["items"] = tuple(fields["items"])
    return Entry(**fields)


def read(path: pathlib.Path) -> list[Entry]:
    return [_entry(line) for line in _whole_lines(path).splitlines()]


def last(path: pathlib.Path) -> Entry | None:
    """The last whole line, whatever the length of the record."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read().split(b"\n")
    # The first may be the end of another one, the last is what a kill left or nothing.
    return _entry(lines[-2]) if len(lines) > 1 else None


def resume(path: pathlib.Path) -> dict[str, Any] | None:
    """The loader's state after the last whole line; what a kill left of another one is cut off."""
    lines = _whole_lines(path)
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(len(lines))
    return json.loads(lines.splitlines()[-1])["state"] if lines else None


def problems_of_rank(name: str, entries: Iterable[Entry]) -> list[str]:
    """A rank's own story: each step follows the one before, or begins the next epoch."""
    found = []
    before: Entry | None = None
    for entry in entries:
        if before is None:
            if entry.at != (0, 0):
                found.append(f"{name} begins at {entry.at}")
        elif entry.at not in ((before.epoch, before.step + 1), (before.epoch + 1, 0)):
            found.append(f"{name} was handed {entry.at} after {before.at}")
        before = entry
    return found


def problems_of_job(
    name: str, shards: list[list[Entry]], items: int, epochs: int, swaps: list[Swap] | None
) -> list[str]:
    """What holds over all shards, for epochs [0, epochs); with `swaps` None, where is not known."""
    found = []
    for shard, entries in enumerate(shards):
        found += problems_of_rank(f"{name} shard {shard}", entries)
    for epoch in range(epochs):
        steps = [sum(entry.epoch == epoch for entry in entries) for entries in shards]
        if len(set(steps)) != 1 or steps[0] == 0:
            found.append(f"{name} epoch {epoch}: the shards were handed {steps} steps")
        counts = collections.Counter(
            item
            for entries in shards
            for entry in entries
            if entry.epoch == epoch
            for item in entry.items
        )
        lost = sorted(set(range(items)) - counts.keys())
        twice = sorted(item for item, count in counts.items() if count > 1)
        unknown = sorted(counts.keys() - set(range(items)))
        for what, which in (("lost", lost), ("handed out twice", twice), ("unknown", unknown)):
            if which:
                found.append(f"{name} epoch {epoch}: {len(which)} items {what}: {which[:8]}")
    return found + _problems_of_versions(name, shards, swaps)


def _problems_of_versions(
    name: str, shards: list[list[Entry]], swaps: list[Swap] | None
) -> list[str]:
    found = []
    seen: dict[StepAt, tuple[int, bool]] = {}
    for shard, entries in enumerate(shards):
        for entry in entries:
            if entry.flipped is None:
                continue
            one = (entry.version, entry.flipped)
            if seen.setdefault(entry.at, one) != one:
                found.append(
                    f"{name} {entry.at}: shard {shard} was handed version {one[0]}, another shard "
                    f"version {seen[entry.at][0]}"
                )
    for at, (version, flipped) in sorted(seen.items()) if swaps is not None else []:
        due = [swap for swap in swaps or [] if swap.at <= at][-1]
        if (version, flipped) != (due.version, due.flipped):
            found.append(
                f"{name} {at}: was made by version {version} (flipped: {flipped}), and version "
                f"{due.version} is in force since {due.at}"
            )
    return found

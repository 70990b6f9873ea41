# SPDX-License-Identifier: Apache-2.0
"""launch=True with real processes: one daemon for all ranks, and nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
from integration.ranks import Rank, indices

RANKS, ITEMS, BATCH = 8, 64, 2
MARK = "SPDLD_TEST_MARK"


class Node:
    """A runtime directory that launched daemons find, and a mark on the daemons that its ranks start."""

    def __init__(self) -> None:
        # Socket paths are limited to 107 bytes.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="spdld-node-", dir="/tmp"))
        self.mark = uuid.uuid4().hex
        self.environment = {
            "XDG_RUNTIME_DIR": str(self.directory),
            "SPDLD_BIN": str(daemon_module.build_dir() / "bin/spdld"),
            MARK: self.mark,
        }
        self.ranks: list[Rank] = []

    def start(self, pipeline: pathlib.Path, count: int) -> list[Rank]:
        self.ranks = [
            Rank(
                pipeline=str(pipeline),
                launch=True,
                job="run",
                rank=rank,
                world_size=count,
                environment=self.environment,
            )
            for rank in range(count)
        ]
        return self.ranks

    def processes(self) -> dict[int, str]:
        """Names by pid of what carries the mark."""
        found = {}
        for process in pathlib.Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                if f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes():
                    found[int(process.name)] = (process / "comm").read_text().strip()
            except OSError:
                continue  # it has ended
        return found

    def daemons(self) -> list[int]:
        return [pid for pid, name in self.processes().items() if name == "spdld"]

    def is_clean(self) -> bool:
        return not self.processes() and not list(self.directory.iterdir())

    def close(self) -> None:
        for rank in self.ranks:
            rank.close()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def node() -> Iterator[Node]:
    if pathlib.Path("/run/spdld/data.sock").exists():
        pytest.skip("a daemon of the system's would be used instead")
    one = Node()
    yield one
    one.close()


@pytest.fixture
def pipeline(make_dataset: Callable[..., Any], write_pipeline: Callable[..., Any]) -> pathlib.Path:
    return write_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH, "last": "keep"})


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "spdld" in name}


def test_eight_ranks_at_once_share_one_daemon_that_leaves_after_them(
    node: Node, pipeline: pathlib.Path, wait_until: Callable[..., Any]
) -> None:
    memory = shared_memory()
    ranks = node.start(pipeline, RANKS)
    for rank in ranks:
        rank.ask("place")
    places = [rank.answer() for rank in ranks]
    assert [place.get("shard") for place in places] == list(range(RANKS)), places
    assert len({place["address"] for place in places}) == 1
    assert len(node.daemons()) == 1
    rows = [index for rank in ranks for index in indices(rank.rest_of_epoch())]
    assert sorted(rows) == list(range(ITEMS))
    for rank in ranks:
        rank.do("close")
        rank.close()
    wait_until(node.is_clean, "the launched daemon's end")
    assert shared_memory() <= memory


def test_ranks_that_are_killed_leave_no_daemon_either(
    node: Node, pipeline: pathlib.Path, wait_until: Callable[..., Any]
) -> None:
    memory = shared_memory()
    ranks = node.start(pipeline, RANKS)
    for rank in ranks:
        rank.ask("next", hold=True)
    for rank in ranks:
        assert "error" not in rank.answer()
    for rank in ranks:
        rank.kill()
    wait_until(node.is_clean, "the launched daemon's end")
    assert shared_memory() <= memory


def test_ranks_that_are_killed_before_they_attach_leave_no_daemon_for_the_next(
    node: Node, pipeline: pathlib.Path, wait_until: Callable[..., Any]
) -> None:
    for rank in node.start(pipeline, 2):
        rank.ask("next")
        rank.kill()
        rank.close()
    ranks = node.start(pipeline, 2)
    rows = [index for rank in ranks for index in indices(rank.rest_of_epoch())]
    assert sorted(rows) == list(range(ITEMS))
    assert len(node.daemons()) == 1
    for rank in ranks:
        rank.close()
    wait_until(node.is_clean, "the launched daemon's end")


def test_a_launched_daemon_that_is_killed_is_started_once_for_all_ranks(
    node: Node, pipeline: pathlib.Path, wait_until: Callable[..., Any]
) -> None:
    ranks = node.start(pipeline, 4)
    for rank in ranks:
        rank.ask("next")
    rows = [index for rank in ranks for index in rank.answer()["indices"]]
    [first] = node.daemons()
    os.kill(first, signal.SIGKILL)
    for rank in ranks:
        rank.ask("next")
    rows += [index for rank in ranks for index in rank.answer()["indices"]]
    rows += [index for rank in ranks for index in indices(rank.rest_of_epoch())]
    assert sorted(rows) == list(range(ITEMS))
    [second] = node.daemons()
    assert second != first
    for rank in ranks:
        rank.close()
    wait_until(node.is_clean, "the launched daemon's end")


def test_ranks_that_come_in_turn_find_or_start_a_daemon(
    node: Node, pipeline: pathlib.Path, wait_until: Callable[..., Any]
) -> None:
    for _ in range(2):
        [rank] = node.start(pipeline, 1)
        assert sorted(indices(rank.rest_of_epoch())) == list(range(ITEMS))
        rank.close()
        wait_until(node.is_clean, "the launched daemon's end")


def test_a_launched_daemon_that_cannot_start_is_told_with_its_log(
    node: Node, pipeline: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    broken = tmp_path / "spdld"
    broken.write_text("#!/bin/sh\necho 'libgrpc++.so.1: no such file'\nexit 127\n")
    broken.chmod(0o755)
    node.environment["SPDLD_BIN"] = str(broken)
    [rank] = node.start(pipeline, 1)
    refused = rank.do("next")
    assert refused["error"] == "ConnectionError"
    assert "did not come up" in refused["message"]
    assert "libgrpc++.so.1: no such file" in refused["message"]

# SPDX-License-Identifier: Apache-2.0
"""One job on two nodes: daemons that never talk to each other agree on its order and its changes."""

from __future__ import annotations

import itertools
import pathlib
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
from integration.failpoints import needs_failpoints
from integration.fleet import Fleet
from integration.ranks import Rank
from integration.versions import CROPPED, PLAIN, SMALLER, phases

ITEMS, BATCH, SHARDS, PREFETCH = 192, 2, 4, 2
STEPS = ITEMS // (BATCH * SHARDS)

Write = Callable[..., pathlib.Path]


class Node(daemon_module.Daemon):
    """A daemon in a network namespace of its own, in which there is not even a loopback."""

    def _program(self) -> pathlib.Path:
        start = self.directory / "start"
        start.write_text(f'#!/bin/sh\nexec unshare --net -- {super()._program()} "$@"\n')
        start.chmod(0o755)
        return start


@pytest.fixture(params=["shared", "namespaces"])
def nodes(request: pytest.FixtureRequest, write: Write) -> Iterator[list[Any]]:
    """Two daemons, without a network between them if the test may have that."""
    kind = daemon_module.Daemon
    if request.param == "namespaces":
        tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
        if tried.returncode != 0:
            pytest.skip(f"no network namespaces here: {tried.stderr.strip()}")
        kind = Node
    made = [kind(pipelines=[write(PLAIN)]) for _ in range(2)]
    for node in made:
        node.start()
    yield made
    for node in made:
        log = node.log()
        node.close()
        print(f"--- spdld's log\n{log}")  # captured; shown on failure


@pytest.fixture
def write(make_dataset: Callable[..., Any], write_version: Write) -> Write:
    data = make_dataset(count=ITEMS, texture=True)

    def write(stages: list[Any], **sections: Any) -> pathlib.Path:
        options = {"batch": {"size": BATCH}, **sections}
        return write_version(data, stages=stages, **options)

    return write


@pytest.fixture
def fleet(nodes: list[Any]) -> Iterator[Fleet]:
    """Shards 0 and 1 at the first node, 2 and 3 at the second."""
    ranks = Fleet(
        Rank(
            pipeline="images",
            address=nodes[shard // 2].address,
            job="run",
            rank=shard,
            world_size=SHARDS,
            prefetch=PREFETCH,
        )
        for shard in range(SHARDS)
    )
    yield ranks
    ranks.close()


def apply_everywhere(
    nodes: list[Any], file: pathlib.Path, at: str, *more: str
) -> subprocess.CompletedProcess[str]:
    here, *others = nodes
    addresses = itertools.chain.from_iterable(("--address", node.address) for node in others)
    return here.ctl(*addresses, "apply", "-f", file, "--job", "run", "--at", at, *more, check=False)


def check_undisturbed(nodes: list[Any], fleet: Fleet) -> None:
    for node in nodes:
        assert phases(node) == [(0, 0, 1)]
        assert node.ctl_json("get", "pipelines", "images")["version"] == 1
    fleet.read_epochs(1)
    assert sorted(fleet.flat(0)) == list(range(ITEMS))
    assert {batch["version"] for batch in fleet.got.values()} == {1}


def test_an_epoch_is_complete_and_its_shards_are_disjoint(fleet: Fleet) -> None:
    fleet.read_epochs(2)
    for epoch in range(2):
        assert sorted(fleet.flat(epoch)) == list(range(ITEMS))
    assert len(fleet.got) == 2 * STEPS * SHARDS


def test_all_shards_change_at_one_step(nodes: list[Any], fleet: Fleet, write: Write) -> None:
    fleet.rounds(3)
    done = apply_everywhere(nodes, write(CROPPED), "step:0/13")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("job 'run' changes to version 2 at epoch 0, step 13\n") == 2
    fleet.read_epochs(1)
    assert sorted(fleet.flat(0)) == list(range(ITEMS))
    for (_, step, _), batch in fleet.got.items():
        assert batch["version"] == (2 if step >= 13 else 1)


def test_a_change_outlives_one_daemon_or_the_other(
    nodes: list[Any], fleet: Fleet, write: Write
) -> None:
    fleet.rounds(3)
    assert apply_everywhere(nodes, write(CROPPED), "step:0/13").returncode == 0
    nodes[1].kill()
    nodes[1].start()
    fleet.read_epochs(1)
    assert sorted(fleet.flat(0)) == list(range(ITEMS))
    for (_, step, _), batch in fleet.got.items():
        assert batch["version"] == (2 if step >= 13 else 1)


@needs_failpoints
@pytest.mark.parametrize("point", ["session.swap.commit", "session.swap.committed"])
def test_a_daemon_that_dies_over_its_commit_keeps_what_it_had_promised(
    nodes: list[Any], fleet: Fleet, write: Write, point: str
) -> None:
    here, there = nodes
    fleet.rounds(3)
    there._environment["SPDLD_FAILPOINTS"] = f"{point}=kill"
    there.kill()
    there.start()
    fleet.rounds(PREFETCH + 1)  # by then each rank is back
    done: list[subprocess.CompletedProcess[str]] = []
    file = write(CROPPED)
    swap = threading.Thread(target=lambda: done.append(apply_everywhere(nodes, file, "step:0/13")))
    swap.start()
    assert there.wait() == -signal.SIGKILL, "at its commit, after the first one's"
    there._environment["SPDLD_FAILPOINTS"] = ""
    there.start()
    swap.join()
    assert done[0].returncode == 0, done[0].stderr
    fleet.read_epochs(1)
    for node in (here, there):
        assert phases(node)[-1] == (0, 13, 2)
    assert sorted(fleet.flat(0)) == list(range(ITEMS))
    for (_, step, _), batch in fleet.got.items():
        assert batch["version"] == (2 if step >= 13 else 1)


def test_a_point_that_one_node_has_passed_changes_nothing(
    nodes: list[Any], fleet: Fleet, write: Write
) -> None:
    fleet.rounds(3)
    for _ in range(12):
        fleet.round([2, 3])
    refused = apply_everywhere(nodes, write(CROPPED), "step:0/10")
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"spdlctl: nothing has changed: {nodes[1].address} refused: ")
    assert "has passed epoch 0, step 10" in refused.stderr
    check_undisturbed(nodes, fleet)


def test_another_schema_on_one_node_changes_nothing(
    nodes: list[Any], fleet: Fleet, write: Write
) -> None:
    fleet.rounds(2)
    # On the second node the job already comes to that content, and so to its shapes.
    smaller = write(SMALLER)
    nodes[1].ctl(
        *("apply", "-f", smaller, "--job", "run", "--at", "step:0/20", "--allow-schema-change")
    )
    refused = apply_everywhere(nodes, smaller, "step:0/13")
    assert refused.returncode == 1
    assert "would be given image uint8 (2, 3, 16, 16)" in refused.stderr
    assert phases(nodes[0]) == [(0, 0, 1)]
    assert phases(nodes[1]) == [(0, 0, 1), (0, 20, 2)], "as it was"
    fleet.read_epochs(1)
    assert sorted(fleet.flat(0)) == list(range(ITEMS))


def test_a_root_that_one_node_may_not_read_changes_nothing(
    nodes: list[Any],
    fleet: Fleet,
    write: Write,
    make_dataset: Callable[..., Any],
    data_root: Callable[[], str],
) -> None:
    fleet.rounds(2)
    elsewhere = make_dataset(count=ITEMS, texture=True, name="elsewhere")
    nodes[1].configure(pipelines=[], settings={"access": {"roots": [data_root()]}})
    nodes[1].kill()
    nodes[1].start()
    fleet.rounds(PREFETCH + 1)  # by then each rank is back
    moved = write(
        PLAIN,
        source={
            "files": {"root": str(elsewhere.root), "pattern": "**/*.jpg", "label": "parent_dir"}
        },
    )
    refused = apply_everywhere(nodes, moved, "step:1/0")
    assert refused.returncode == 1
    assert f"{nodes[1].address} refused: " in refused.stderr
    assert "access.roots" in refused.stderr
    check_undisturbed(nodes, fleet)


@pytest.fixture
def data_root(make_dataset: Callable[..., Any]) -> Callable[[], str]:
    return lambda: str(make_dataset(count=ITEMS, texture=True).root)

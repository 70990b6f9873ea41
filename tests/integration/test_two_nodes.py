# SPDX-License-Identifier: Apache-2.0
"""One job on two nodes: daemons that never talk to each other agree on its order and its changes."""

from __future__ import annotations

import pathlib
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
from integration.between import Between
from integration.fleet import Fleet
from integration.ranks import Rank
from integration.versions import CROPPED, PLAIN, SMALLER, phases

ITEMS, BATCH, SHARDS, PREFETCH = 192, 2, 4, 2
STEPS = ITEMS // (BATCH * SHARDS)
# So many steps ahead that ranks which have read a few batches are not there within 10 s.
FAR = (5, 13)

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
    nodes: list[Any], file: pathlib.Path, at: str, *, through: Between | None = None
) -> subprocess.CompletedProcess[str]:
    """With `through`, what is said to the second node goes that way."""
    here, there = nodes
    address = there.address if through is None else through.address
    applied = ("apply", "-f", file, "--job", "run", "--at", at)
    return here.ctl("--address", address, *applied, check=False)


def apply_far_ahead(
    nodes: list[Any], file: pathlib.Path, through: Between | None = None
) -> subprocess.CompletedProcess[str]:
    if through is not None:
        file.write_bytes(file.read_bytes() + through.MARKER + b"\n")
    return apply_everywhere(nodes, file, "step:{}/{}".format(*FAR), through=through)


def begin(nodes: list[Any], fleet: Fleet) -> None:
    """Each rank has read, and is known to go at some pace."""
    fleet.rounds(3)
    daemon_module.wait_until(
        lambda: all(
            session.get("rows_per_s") is not None
            for node in nodes
            for session in node.ctl_json("get", "sessions")
        ),
        "the ranks' pace is known",
    )


def bring_back(node: Any, nodes: list[Any], fleet: Fleet) -> None:
    node.start()
    fleet.rounds(PREFETCH + 1)  # by then each rank is back
    begin(nodes, fleet)


def check_changed(nodes: list[Any], fleet: Fleet) -> None:
    fleet.read_epochs(FAR[0] + 1)
    for node in nodes:
        assert phases(node)[-1] == (*FAR, 2)
    for epoch in range(FAR[0] + 1):
        assert sorted(fleet.flat(epoch)) == list(range(ITEMS))
    for (epoch, step, _), batch in fleet.got.items():
        assert batch["version"] == (2 if (epoch, step) >= FAR else 1)


def pipelines(nodes: list[Any]) -> list[Any]:
    """What each node says of its pipeline and of the versions that it had."""
    return [
        node.ctl_json("get", "pipelines", "images", *more)
        for node in nodes
        for more in ((), ("--history",))
    ]


def check_as_it_was(nodes: list[Any], fleet: Fleet, pipelines_before: list[Any]) -> None:
    assert pipelines(nodes) == pipelines_before
    for node in nodes:
        assert phases(node) == [(0, 0, 1)]
    fleet.read_epochs(FAR[0] + 1)
    for epoch in range(FAR[0] + 1):
        assert sorted(fleet.flat(epoch)) == list(range(ITEMS))
    assert {batch["version"] for batch in fleet.got.values()} == {1}


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
    begin(nodes, fleet)
    done = apply_far_ahead(nodes, write(CROPPED))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("job 'run' changes to version 2 at epoch 5, step 13\n") == 2
    check_changed(nodes, fleet)


def test_a_daemon_that_is_gone_before_changes_nothing(
    nodes: list[Any], fleet: Fleet, write: Write
) -> None:
    begin(nodes, fleet)
    nodes[1].kill()
    refused = apply_far_ahead(nodes, write(CROPPED))
    assert refused.returncode == 3
    assert f"no daemon answers at {nodes[1].address}" in refused.stderr
    bring_back(nodes[1], nodes, fleet)
    check_undisturbed(nodes, fleet)


def test_the_same_command_changes_a_daemon_that_died(
    nodes: list[Any], fleet: Fleet, write: Write
) -> None:
    here, there = nodes
    begin(nodes, fleet)
    file = write(CROPPED)
    with Between(there, before=there.kill) as between:
        split = apply_far_ahead(nodes, file, between)
    assert split.returncode == 1
    assert (
        f"\n  {here.address}: changes\n  {between.address}: not known to change: " in split.stderr
    )
    assert f"\nto end it:\n  spdlctl --address {here.address} --address " in split.stderr
    assert (phases(here)[-1]) == (*FAR, 2)
    bring_back(there, nodes, fleet)
    assert phases(there) == [(0, 0, 1)]
    done = apply_far_ahead(nodes, file)
    assert done.returncode == 0, done.stderr
    check_changed(nodes, fleet)


def test_the_named_commands_undo_a_change_without_an_answer(
    nodes: list[Any], fleet: Fleet, write: Write
) -> None:
    here, there = nodes
    begin(nodes, fleet)
    before = pipelines(nodes)

    def die_once_changed() -> None:
        daemon_module.wait_until(lambda: phases(there)[-1] == (*FAR, 2), "the job changes")
        there.kill()

    with Between(there, after=die_once_changed) as between:
        split = apply_far_ahead(nodes, write(CROPPED), between)
    assert split.returncode == 1
    assert f"\n  {between.address}: not known to change: " in split.stderr
    bring_back(there, nodes, fleet)
    assert phases(there)[-1] == (*FAR, 2), "it was on disk"
    undoing = re.findall(r"^  spdlctl --address (\S+) (rollback .*)$", split.stderr, re.MULTILINE)
    assert [address for address, _ in undoing] == [here.address, between.address]
    for node, (_, command) in zip(nodes, undoing, strict=True):
        node.ctl(*command.split())
    check_as_it_was(nodes, fleet, before)


def test_a_change_outlives_one_daemon_or_the_other(
    nodes: list[Any], fleet: Fleet, write: Write
) -> None:
    begin(nodes, fleet)
    assert apply_far_ahead(nodes, write(CROPPED)).returncode == 0
    nodes[1].kill()
    nodes[1].start()
    check_changed(nodes, fleet)


def test_a_point_that_one_node_passes_meanwhile_changes_neither(
    nodes: list[Any], fleet: Fleet, write: Write
) -> None:
    here, there = nodes
    begin(nodes, fleet)
    before = pipelines(nodes)

    def read_beyond_it() -> None:
        while not all((*FAR, shard) in fleet.got for shard in (2, 3)):
            fleet.round([2, 3])

    with Between(there, before=read_beyond_it) as between:
        refused = apply_far_ahead(nodes, write(CROPPED), between)
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        f"spdlctl: nothing has changed:\n  {here.address}: has changed, and goes on as before "
        f"again\n  {between.address}: refused: "
    ), refused.stderr
    assert "has passed epoch 5, step 13" in refused.stderr
    check_as_it_was(nodes, fleet, before)


def test_a_point_that_a_rank_soon_comes_to_is_refused(
    nodes: list[Any], fleet: Fleet, write: Write
) -> None:
    begin(nodes, fleet)
    file = write(CROPPED)

    def refused_as_too_near() -> str | None:
        fleet.rounds(1)
        passed = apply_everywhere(nodes, file, "step:0/0")
        next_step = re.search(r"can still change is epoch (\d+), step (\d+)", passed.stderr)
        assert next_step is not None, passed.stderr
        refused = apply_everywhere(nodes, file, "step:{}/{}".format(*next_step.groups()))
        assert refused.returncode == 1, refused.stdout
        return refused.stderr if "is too near" in refused.stderr else None

    said = daemon_module.wait_until(refused_as_too_near, "the next step is refused as too near")
    assert re.search(r": --at step:\d+/\d+ is the nearest point that will do$", said)
    check_undisturbed(nodes, fleet)


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

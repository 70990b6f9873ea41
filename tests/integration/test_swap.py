# SPDX-License-Identifier: Apache-2.0
"""A running job goes on with another pipeline: four ranks, one step, nothing lost and nothing twice."""

from __future__ import annotations

import itertools
import pathlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import on_gpu
import pytest
from integration.fleet import Fleet, Key
from integration.versions import CROPPED, PLAIN, SMALLER, phases
from kinds import Kind

ITEMS, BATCH, SHARDS, PREFETCH = 192, 2, 4, 2
STEPS = ITEMS // (BATCH * SHARDS)
# What can be said at once for any content: `side` of what is cut out.
BY_VARS = ["fetch", "decode_image", {"center_crop": {"size": ["${side}", "${side}"]}}, *PLAIN[2:]]

Write = Callable[..., pathlib.Path]
StartFleet = Callable[..., Fleet]


def keys(epochs: range | list[int] = range(1), steps: range = range(STEPS)) -> list[Key]:
    return list(itertools.product(epochs, steps, range(SHARDS)))


@pytest.fixture
def data(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=ITEMS, texture=True)


@pytest.fixture
def write(data: Any, write_version: Write) -> Write:
    """write(stages, name, dataset, **sections): a file of its own, of pipeline 'images' or another."""

    def write(
        stages: list[Any], name: str = "images", dataset: Any = None, **sections: Any
    ) -> pathlib.Path:
        options = {"batch": {"size": BATCH}, **sections}
        return write_version(dataset or data, name, stages=stages, **options)

    return write


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], write: Write) -> Any:
    return make_daemon(pipelines=[write(PLAIN), write(PLAIN, "plain"), write(CROPPED, "cropped")])


@pytest.fixture
def start_fleet() -> Iterator[StartFleet]:
    """start_fleet(daemon): a rank for each shard of job 'run', with two credits each."""
    from integration.ranks import Rank

    started: list[Fleet] = []

    def start(at: Any, pipeline: str = "images", job: str = "run", **options: Any) -> Fleet:
        options = {"prefetch": PREFETCH, "world_size": SHARDS, **options}
        started.append(
            Fleet(
                Rank(pipeline=pipeline, address=at.address, job=job, rank=shard, **options)
                for shard in range(SHARDS)
            )
        )
        return started[-1]

    yield start
    for fleet in started:
        fleet.close()


@pytest.fixture
def uninterrupted(daemon: Any, start_fleet: StartFleet) -> Callable[..., dict[Key, Any]]:
    """uninterrupted(pipeline): what ranks of another job are given in two epochs without a swap."""

    def read(pipeline: str, epochs: int = 2) -> dict[Key, Any]:
        fleet = start_fleet(daemon, pipeline, job=f"reference-{pipeline}")
        fleet.read_epochs(epochs)
        fleet.close()
        return fleet.got

    return read


def apply(daemon: Any, file: pathlib.Path, at: str, *more: str) -> tuple[int, int]:
    """Changes job 'run'; where it does."""
    done = daemon.ctl_json("apply", "-f", file, "--job", "run", "--at", at, *more)
    (job,) = done["jobs"]
    return job["from"]["epoch"], job["from"]["step"]


def refusal(daemon: Any, file: pathlib.Path, at: str, *more: str) -> str:
    refused = daemon.ctl("apply", "-f", file, "--job", "run", "--at", at, *more, check=False)
    assert refused.returncode != 0, refused.stdout
    return refused.stderr


def declare(daemon: Any) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images", "--shards", str(SHARDS))


def by_phase(
    before: dict[Key, Any], after: dict[Key, Any], point: tuple[int, int]
) -> Callable[[Key], Any]:
    assert all(before[key]["sum"] != after[key]["sum"] for key in before)
    return lambda key: (after if key[:2] >= point else before)[key]


@pytest.mark.parametrize("at", ["now", "next-epoch", "step:0/13"])
def test_all_shards_change_at_one_step_and_no_batch_is_lost_or_repeated(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any], at: str
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    point = apply(daemon, write(CROPPED), at)
    if at == "now":
        assert (0, 3) <= point <= (0, 8 + on_gpu.ahead(PREFETCH))
    else:
        assert point == ((1, 0) if at == "next-epoch" else (0, 13))
    fleet.read_epochs(2)
    fleet.check(by_phase(uninterrupted("plain"), uninterrupted("cropped"), point), keys(range(2)))
    assert {batch["version"] for key, batch in fleet.got.items() if key[:2] >= point} == {2}
    assert {batch["version"] for key, batch in fleet.got.items() if key[:2] < point} == {1}


def test_shards_that_are_read_at_half_speed_change_at_the_step_of_the_others(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(2)
    points: list[tuple[int, int]] = []
    swap = threading.Thread(target=lambda: points.append(apply(daemon, write(CROPPED), "now")))
    swap.start()
    for turn in range(STEPS // 2):
        fleet.round([0, 1] if turn % 2 else None)
    swap.join()
    fleet.read_epochs(2)
    (point,) = points
    fleet.check(by_phase(uninterrupted("plain"), uninterrupted("cropped"), point), keys(range(2)))


def test_a_point_that_has_passed_is_refused(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(5)
    why = refusal(daemon, write(CROPPED), "step:0/2")
    assert "job 'run' has passed epoch 0, step 2: the first step that can still change is" in why
    assert "there is no step 99" in refusal(daemon, write(CROPPED), "step:0/99")
    assert phases(daemon) == [(0, 0, 1)]
    assert daemon.ctl_json("get", "pipelines", "images")["version"] == 1
    fleet.read_epochs(1)
    fleet.check(uninterrupted("plain", 1).__getitem__, keys())


@pytest.mark.parametrize("what", ["corrupt", "missing", "variable", "order"])
def test_what_cannot_make_a_batch_leaves_the_old_one_running(
    daemon: Any,
    write: Write,
    make_dataset: Callable[..., Any],
    start_fleet: StartFleet,
    uninterrupted: Callable[..., Any],
    what: str,
    kind: Kind,
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    more: tuple[str, ...] = ()
    file, at = write(PLAIN), "next-epoch"
    if what == "corrupt":
        broken = make_dataset(count=ITEMS, name="corrupt")
        for image in broken.files:
            image.write_bytes(b"\xff\xd8\xff\xe0 and no more")
        file = write(PLAIN, dataset=broken, on_error={"decode": "fail"})
        expected = "job 'run' goes on with what it has: a first batch of the new version could not"
    elif what == "missing":
        if kind.source != "files":
            pytest.skip("a pattern is of files alone")
        text = file.read_text().replace("**/*.jpg", "**/*.webp")
        file.write_text(text)
        expected = "**/*.webp"
    elif what == "variable":
        more, expected = ("--var", "sise=3"), "sise"
    else:
        file, at = write(PLAIN, shuffle="none"), "step:0/13"
        expected = "at an epoch's start only"
    assert expected in refusal(daemon, file, at, *more)
    assert phases(daemon) == [(0, 0, 1)]
    assert daemon.ctl_json("get", "pipelines", "images")["version"] == 1
    fleet.read_epochs(2)
    plain = uninterrupted("plain")
    fleet.check(plain.__getitem__, keys(range(2)))


def test_other_shapes_are_refused_by_name_and_come_in_the_same_loop_when_allowed(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    smaller = write(SMALLER)
    large, small = on_gpu.enlarged(32), on_gpu.enlarged(16)
    assert (
        refusal(daemon, smaller, "step:0/13")
        .splitlines()[0]
        .endswith(
            f"job 'run' is given image uint8 (2, 3, {large}, {large}), and would be given image "
            f"uint8 (2, 3, {small}, {small}); if the training loop can take it, allow it "
            "(--allow-schema-change)"
        )
    )
    assert apply(daemon, smaller, "step:0/13", "--allow-schema-change") == (0, 13)
    fleet.read_epochs(1)
    plain = uninterrupted("plain", 1)
    assert fleet.indices() == {key: batch["indices"] for key, batch in plain.items()}
    for (_, step, _), batch in fleet.got.items():
        side = large if step < 13 else small
        assert batch["shape"] == [BATCH, 3, side, side]


def test_another_batch_size_goes_on_in_the_same_order(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    larger = write(PLAIN, batch={"size": 3})
    # It names the first field that changes, which may be another one than the image.
    assert re.search(
        r"is given \w+ \w+ \(2\b.* and would be given \w+ \w+ \(3\b",
        refusal(daemon, larger, "step:0/12"),
    )
    apply(daemon, larger, "step:0/12", "--allow-schema-change")
    fleet.read_epochs(2)
    flat = Fleet([])
    flat.got = uninterrupted("plain")
    for epoch in range(2):
        assert fleet.flat(epoch) == flat.flat(epoch)
    steps = {key[1] for key in fleet.got if key[0] == 0}
    assert steps == set(range(12 + (ITEMS - 12 * BATCH * SHARDS) // (3 * SHARDS)))
    assert all(
        batch["shape"][0] == (2 if key[:2] < (0, 12) else 3) for key, batch in fleet.got.items()
    )


def test_another_dataset_begins_with_an_epoch(
    daemon: Any, write: Write, make_dataset: Callable[..., Any], start_fleet: StartFleet
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    fewer = make_dataset(count=64)
    file = write(PLAIN, dataset=fewer, shuffle="none")
    told = refusal(daemon, file, "now")
    assert "another dataset, other clips or windows, another shuffle, repeat or seed give" in told
    assert "at an epoch's start only" in told
    assert apply(daemon, file, "next-epoch") == (1, 0)
    fleet.read_epochs(2)
    assert sorted(fleet.flat(0)) == list(range(ITEMS))
    assert fleet.flat(1) == list(range(64))


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "attached"])
@pytest.mark.parametrize("when", ["ahead", "behind"])
def test_a_switch_outlives_the_daemon(
    daemon: Any,
    write: Write,
    start_fleet: StartFleet,
    uninterrupted: Callable[..., Any],
    declared: bool,
    when: str,
) -> None:
    if declared:
        declare(daemon)
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    apply(daemon, write(CROPPED), "step:0/13")
    fleet.rounds(2 if when == "ahead" else 14)
    daemon.kill()
    daemon.start()
    fleet.read_epochs(2)
    assert phases(daemon) == [(0, 0, 1), (0, 13, 2)]
    fleet.check(by_phase(uninterrupted("plain"), uninterrupted("cropped"), (0, 13)), keys(range(2)))


def test_who_goes_back_before_the_switch_gets_the_earlier_version(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(4)
    states = []
    for rank in fleet.ranks:
        states.append(rank.do("state")["state"])
    apply(daemon, write(CROPPED), "step:0/13")
    fleet.rounds(STEPS - 8)
    for rank, state in zip(fleet.ranks, states, strict=True):
        assert rank.do("load", state=state) == {}
    fleet.forget_from(0, 4)
    fleet.read_epochs(1)
    expected = by_phase(uninterrupted("plain", 1), uninterrupted("cropped", 1), (0, 13))
    fleet.check(expected, keys())


def test_a_job_that_is_sent_back_by_an_operator_keeps_the_version_that_it_runs(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(4)
    apply(daemon, write(CROPPED), "step:0/13")
    fleet.rounds(12)
    daemon.ctl("job", "seek", "run", "--epoch", "0", "--step", "5")
    fleet.forget_from(0, 5)
    before: list[list[int]] = [[] for _ in fleet.ranks]
    for shard, rank in enumerate(fleet.ranks):
        # What any shard had begun before comes first, on all of them.
        while (batch := rank.next())["step"] != 5:
            before[shard].append(batch["step"])
        fleet.got[0, 5, shard] = batch
    assert all(steps == before[0] for steps in before)
    assert before[0] == list(range(16, 16 + len(before[0])))
    fleet.read_epochs(1)
    # It changed at step 13, in a turn that lies behind: a seek back does not undo that.
    expected = by_phase(uninterrupted("plain", 1), uninterrupted("cropped", 1), (0, 5))
    fleet.check(expected, keys())


def test_a_resize_leaves_a_scheduled_switch_where_it_is(
    daemon: Any, write: Write, start_fleet: StartFleet
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    apply(daemon, write(CROPPED), "step:1/2")
    daemon.ctl("job", "resize", "run", "--shards", "2")
    assert phases(daemon) == [(0, 0, 1), (1, 2, 2)]
    two = Fleet(fleet.ranks[:2])
    two.got, gone = fleet.got, fleet.ranks[2:]
    for rank in gone:
        while "error" not in (last := rank.do("next")):
            fleet.got[last["epoch"], last["step"], 4 + gone.index(rank)] = last
    two.read_epochs(2)
    assert sorted(two.flat(0)) == list(range(ITEMS))
    assert sorted(two.flat(1)) == list(range(ITEMS))
    for key, batch in two.got.items():
        assert batch["version"] == (2 if key[:2] >= (1, 2) else 1)


def test_a_rollback_is_a_switch_like_another(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    apply(daemon, write(CROPPED), "step:0/12")
    daemon.kill()
    daemon.start()
    fleet.rounds(
        10
    )  # each rank is back, and behind the first change: a rollback would drop it else
    back = 18 + on_gpu.ahead(PREFETCH)
    daemon.ctl("rollback", "images", "--job", "run", "--at", f"step:0/{back}")
    fleet.read_epochs(1)
    assert phases(daemon) == [(0, 0, 1), (0, 12, 2), (0, back, 3)]
    plain, cropped = uninterrupted("plain", 1), uninterrupted("cropped", 1)
    fleet.check(lambda key: (cropped if 12 <= key[1] < back else plain)[key], keys())
    before = daemon.ctl_json("get", "pipelines", "images", "--history")
    assert [(revision["version"], revision["note"]) for revision in before] == [
        (1, before[0]["note"]),
        (2, "for job 'run'"),
        (3, "rollback to version 1"),
    ]
    daemon.kill()
    daemon.start()
    after = daemon.ctl_json("get", "pipelines", "images", "--history")
    assert [r | {"jobs": 0} for r in after] == [r | {"jobs": 0} for r in before]
    done = daemon.ctl_json("rollback", "images", "--to", "2")
    assert done["pipeline"]["version"] == 4
    assert done["pipeline"]["content_digest"] == before[1]["content_digest"]


def test_what_only_tunes_is_changed_at_once_and_rebuilds_nothing(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    tuned = write([{"fetch": {"concurrency": 3}}, *PLAIN[1:]])
    said = daemon.ctl("apply", "-f", tuned, "--job", "run", "--at", "next-epoch").stdout
    assert "job 'run' runs version 2: changed at once, only live values differ\n" in said
    assert phases(daemon) == [(0, 0, 2)]
    stages = daemon.ctl_json("get", "stages")
    assert [stage["concurrency"] for stage in stages if stage["stage"] == "fetch"] == [3]
    fleet.read_epochs(1)
    plain = uninterrupted("plain", 1)
    fleet.check(plain.__getitem__, keys())
    daemon.ctl("job", "resize", "run", "--shards", "2")
    assert {phase[2] for phase in phases(daemon)} == {2}


def test_replicas_of_a_shard_change_together(
    daemon: Any, write: Write, start_rank: Callable[..., Any]
) -> None:
    twins = [
        [
            start_rank(
                daemon,
                job="run",
                rank=0,
                world_size=1,
                shard=shard,
                num_shards=2,
                replica=replica,
                replicas=2,
                prefetch=PREFETCH,
            )
            for shard in range(2)
        ]
        for replica in range(2)
    ]
    fleets = [Fleet(ranks) for ranks in twins]
    for _ in range(3):
        for fleet in fleets:
            for rank in fleet.ranks:
                rank.ask("next")
        for fleet in fleets:
            for shard, rank in enumerate(fleet.ranks):
                batch = rank.answer()
                fleet.got[batch["epoch"], batch["step"], shard] = batch
    point = apply(daemon, write(CROPPED), "now")
    readers = [threading.Thread(target=fleet.read_epochs, args=(1,)) for fleet in fleets]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    one, other = ({key: dict(batch, at=0) for key, batch in fleet.got.items()} for fleet in fleets)
    assert one == other
    assert sorted(fleets[0].flat(0)) == list(range(ITEMS))
    for key, batch in one.items():
        assert batch["version"] == (2 if key[:2] >= point else 1)


def test_ranks_that_all_say_the_same_are_told_the_same(
    make_daemon: Callable[..., Any], write: Write, start_fleet: StartFleet
) -> None:
    daemon = make_daemon(pipelines=[write(BY_VARS, vars={"side": 32})])
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    points = set()
    for at, side in (("now", 24), ("next-epoch", 20), ("step:1/11", 16)):
        for rank in fleet.ranks:
            rank.ask("apply", vars={"side": side}, at=at)
        answers = [rank.answer() for rank in fleet.ranks]
        assert all(answer == answers[0] and "error" not in answer for answer in answers), answers
        point = (answers[0]["epoch"], answers[0]["step"])
        points.add(point)
        # Only one change lies ahead at a time: the next one would replace it.
        while not all((*point, shard) in fleet.got for shard in range(SHARDS)):
            fleet.round()
    assert len(points) == 3
    assert points >= {(1, 0), (1, 11)}
    assert {phase[:2] for phase in phases(daemon)} == {(0, 0), *points}
    fleet.read_epochs(2)
    assert sorted(fleet.got) == sorted(keys(range(2)))


def test_a_job_that_other_nodes_feed_changes_at_a_named_step_alone(
    daemon: Any, write: Write, start_rank: Callable[..., Any]
) -> None:
    rank = start_rank(daemon, job="run", rank=1, world_size=SHARDS, prefetch=2)
    rank.take(2)
    for at in ("now", "next-epoch"):
        why = refusal(daemon, write(CROPPED), at)
        assert "shard 0 is not read from this daemon" in why
        assert "if its rank has only not come yet, try again once it is attached" in why
        assert "--at step:EPOCH/N" in why
    assert apply(daemon, write(CROPPED), "step:0/13") == (0, 13)
    versions = [batch["version"] for batch in rank.rest_of_epoch()]
    assert versions == [1] * 11 + [2] * (STEPS - 13)


def test_a_swap_behind_one_that_has_begun_holds_from_its_own_step(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    apply(daemon, write(CROPPED), "step:0/10")
    fleet.rounds(8)
    back = 17 + on_gpu.ahead(PREFETCH)
    apply(daemon, write(PLAIN), f"step:0/{back}")
    assert phases(daemon) == [(0, 0, 1), (0, 10, 2), (0, back, 3)]
    fleet.read_epochs(1)
    plain, cropped = uninterrupted("plain", 1), uninterrupted("cropped", 1)
    fleet.check(lambda key: (cropped if 10 <= key[1] < back else plain)[key], keys())


def test_a_later_swap_takes_the_place_of_one_that_lay_ahead(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    apply(daemon, write(SMALLER), "step:0/13", "--allow-schema-change")
    apply(daemon, write(CROPPED), "step:0/18")
    assert phases(daemon) == [(0, 0, 1), (0, 18, 3)]
    fleet.read_epochs(1)
    expected = by_phase(uninterrupted("plain", 1), uninterrupted("cropped", 1), (0, 18))
    fleet.check(expected, keys())


@pytest.mark.parametrize("place", [(0, 13), (1, 13)], ids=["passed over", "come to"])
def test_a_planned_swap_outlives_loops_that_break_out_of_their_epochs(
    daemon: Any,
    write: Write,
    start_fleet: StartFleet,
    uninterrupted: Callable[..., Any],
    place: tuple[int, int],
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    assert apply(daemon, write(CROPPED), f"step:{place[0]}/{place[1]}") == place
    fleet.rounds(2)
    for rank in fleet.ranks:
        rank.do("break_off")
    fleet.read_epochs(1)
    read = keys([0], range(5)) + keys([1])
    versions = {key: fleet.got[key]["version"] for key in read}
    point = min((key[:2] for key, version in versions.items() if version == 2))
    if place == (1, 13):
        assert point == place
    else:
        # Each rank is in epoch 1 before the others say that they are: up to where they had been sent.
        assert (1, 0) <= point <= (1, PREFETCH + 2 + on_gpu.ahead(PREFETCH))
    fleet.check(by_phase(uninterrupted("plain"), uninterrupted("cropped"), point), read)
    assert phases(daemon) == [(0, 0, 1), (*point, 2)]


def test_an_earlier_swap_takes_the_place_of_one_that_lay_ahead(
    daemon: Any, write: Write, start_fleet: StartFleet
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    apply(daemon, write(SMALLER), "step:5/0", "--allow-schema-change")
    # It is compared with what is there at its own step.
    apply(daemon, write(CROPPED), "step:0/13")
    assert phases(daemon) == [(0, 0, 1), (0, 13, 3)]
    fleet.read_epochs(2)
    assert sorted(fleet.got) == sorted(keys(range(2)))
    for key, batch in fleet.got.items():
        assert batch["version"] == (3 if key[:2] >= (0, 13) else 1)


def test_a_swap_that_lies_ahead_is_moved_until_it_has_begun(
    daemon: Any, write: Write, start_fleet: StartFleet, uninterrupted: Callable[..., Any]
) -> None:
    fleet = start_fleet(daemon)
    fleet.rounds(3)
    file = write(CROPPED)
    apply(daemon, file, "step:3/0")
    assert apply(daemon, file, "step:0/13") == (0, 13)
    assert phases(daemon) == [(0, 0, 1), (0, 13, 2)]
    assert apply(daemon, file, "step:0/13") == (0, 13), "it may be said twice"
    assert apply(daemon, file, "step:0/20") == (0, 20)
    assert apply(daemon, file, "next-epoch") == (1, 0)
    assert phases(daemon) == [(0, 0, 1), (1, 0, 2)]
    assert apply(daemon, file, "step:0/13") == (0, 13)
    assert apply(daemon, file, "step:0/18") == (0, 18)
    fleet.read_epochs(1)
    assert "has run this from epoch 0, step 18 on" in refusal(daemon, file, "step:2/0")
    assert apply(daemon, file, "now") == (0, 18), "it runs"
    expected = by_phase(uninterrupted("plain", 1), uninterrupted("cropped", 1), (0, 18))
    fleet.check(expected, keys())

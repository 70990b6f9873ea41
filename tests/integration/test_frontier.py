# SPDX-License-Identifier: Apache-2.0
"""No change of a job begins before a step that anybody was given, and no row comes twice for it."""

from __future__ import annotations

import collections
import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
from chaos import marked
from chaos.stepper import Stepper

StepAt = tuple[int, int]
TEXT = marked.Text(mark=0, batch=1, last="keep")  # 48 steps of two shards
FAR, NEAR = 18, 2  # steps that the shards have read: one is far ahead of the other


@pytest.fixture
def images(tmp_path: pathlib.Path) -> pathlib.Path:
    marked.write_images(tmp_path / "images")
    return tmp_path / "images"


@pytest.fixture
def pipeline(tmp_path: pathlib.Path, images: pathlib.Path) -> pathlib.Path:
    return marked.write_pipeline(tmp_path / "first.yaml", images, TEXT)


class Readers:
    """Ranks of job 'run', each at its own pace, and all that they were given."""

    def __init__(self, daemon: Any) -> None:
        self.daemon = daemon
        self.ranks: dict[int, Stepper] = {}
        self.given: list[tuple[int, dict[str, Any]]] = []  # by shard
        self._started: list[Stepper] = []

    def start(self, shard: int, count: int, **options: Any) -> Stepper:
        rank = Stepper(
            environment={"PYTHONPATH": str(daemon_module.build_dir() / "python")},
            pipeline=marked.PIPELINE,
            address=self.daemon.address,
            job="run",
            rank=shard,
            world_size=count,
            prefetch=2,
            **options,
        )
        self._started.append(rank)
        self.ranks[shard] = rank
        return rank

    def step(self, shard: int) -> dict[str, Any]:
        answer = self.ranks[shard].do("step")
        if "items" in answer:
            self.given.append((shard, answer))
        return answer

    def take(self, shard: int, steps: int) -> None:
        for _ in range(steps):
            answer = self.step(shard)
            assert "items" in answer, answer

    def read_up_to(self, shard: int, at: StepAt) -> None:
        """Every step before: shards that enter the job there wait for a rank that was there."""

        def next_step() -> StepAt:
            last = [answer for of, answer in self.given if of == shard][-1]
            return last["epoch"], last["step"] + 1

        while next_step() < at:
            self.take(shard, 1)

    def finish(self, shard: int, epoch: int = 0) -> dict[str, Any]:
        """Reads up to the end of the epoch, or of the shard; what ended it."""
        while True:
            answer = self.step(shard)
            if "error" in answer or answer.get("end", 0) > epoch:
                return answer

    def come_back(self, shard: int) -> None:
        """To a daemon that was started again: its rank uses up what it has, and reconnects."""
        while not any(
            session["shard"] == shard for session in self.daemon.ctl_json("get", "sessions")
        ):
            self.take(shard, 1)

    def beyond(self) -> StepAt:
        """The first step that nobody was given."""
        last = max((answer["epoch"], answer["step"]) for _, answer in self.given)
        return last[0], last[1] + 1

    def rows(self, epoch: int = 0) -> collections.Counter[int]:
        return collections.Counter(
            item for _, answer in self.given if answer["epoch"] == epoch for item in answer["items"]
        )

    def twice(self) -> list[int]:
        return [item for item, count in self.rows().items() if count > 1]

    def steps_of_two_versions(self) -> list[StepAt]:
        seen: dict[StepAt, int] = {}
        return [
            at
            for _, answer in self.given
            if seen.setdefault(at := (answer["epoch"], answer["step"]), answer["version"])
            != answer["version"]
        ]

    def close(self) -> None:
        for rank in self._started:
            rank.close()


@pytest.fixture
def readers(daemon: Any) -> Iterator[Readers]:
    made = Readers(daemon)
    with contextlib.closing(made):
        yield made


def dealt_from(answer: dict[str, Any]) -> StepAt:
    return int(answer["dealt_from"]["epoch"]), int(answer["dealt_from"]["step"])


def resize(daemon: Any, shards: int) -> StepAt:
    return dealt_from(daemon.ctl_json("job", "resize", "run", "--shards", str(shards)))


# What has become of the shard that was far ahead.


def await_record(readers: Readers, wait_until: Callable[..., Any]) -> None:
    """Of a shard that is gone: a daemon that dies before expects it back, and nobody changes the job."""

    def here() -> list[int]:
        members = readers.daemon.record("run")["members"]
        return [member["shard"] for member in members if member["is"] == "here"]

    wait_until(lambda: here() == [0], "the record of who is here")


def goes_on(readers: Readers, wait_until: Callable[..., Any]) -> None:
    pass


def has_left(readers: Readers, wait_until: Callable[..., Any]) -> None:
    readers.ranks.pop(1).do("close")
    await_record(readers, wait_until)


def was_killed(readers: Readers, wait_until: Callable[..., Any]) -> None:
    readers.ranks.pop(1).kill()
    await_record(readers, wait_until)


def was_resized_away(readers: Readers, wait_until: Callable[..., Any]) -> None:
    assert resize(readers.daemon, 1) >= readers.beyond()
    assert "the job was resized to 1 shard" in readers.finish(1)["message"]
    readers.ranks.pop(1).close()
    await_record(readers, wait_until)


FATES = [goes_on, has_left, was_killed, was_resized_away]


def no_restart(daemon: Any) -> None:
    pass


def stopped(daemon: Any) -> None:
    daemon.stop()
    daemon.start()


def killed(daemon: Any) -> None:
    daemon.kill()
    daemon.start()


RESTARTS = [no_restart, stopped, killed]


@pytest.fixture(params=FATES, ids=lambda fate: fate.__name__)
def fate(request: pytest.FixtureRequest) -> Callable[..., None]:
    return request.param


@pytest.fixture(params=RESTARTS, ids=lambda restart: restart.__name__)
def restart(request: pytest.FixtureRequest) -> Callable[..., None]:
    return request.param


@pytest.fixture
def apart(
    readers: Readers,
    fate: Callable[..., None],
    restart: Callable[..., None],
    wait_until: Callable[..., Any],
) -> Readers:
    """Shard 0 is attached and has read a few steps; shard 1 had read many."""
    for shard, steps in ((0, NEAR), (1, FAR)):
        readers.start(shard, 2)
        readers.take(shard, steps)
    fate(readers, wait_until)
    restart(readers.daemon)
    for shard in readers.ranks:
        readers.come_back(shard)
    return readers


def check_rows(readers: Readers, fate: Callable[..., None], lost: int = 0) -> None:
    """Of the whole first epoch: each came, or was left out, or is of a shard that left."""
    for shard in list(readers.ranks):
        readers.finish(shard)
    assert readers.twice() == []
    assert readers.steps_of_two_versions() == []
    if fate not in (has_left, was_killed):
        assert len(readers.rows()) == marked.ITEMS - lost


def test_a_resize_begins_where_nobody_was(apart: Readers, fate: Callable[..., None]) -> None:
    back = fate is was_resized_away
    at = resize(apart.daemon, 3 if back else 1)
    assert at >= apart.beyond()
    if back:
        apart.read_up_to(0, at)
    for shard in (1, 2) if back else ():
        apart.start(shard, 3)
        apart.take(shard, 1)
        first = apart.given[-1][1]
        assert (first["epoch"], first["step"]) == at
    check_rows(apart, fate)


def test_a_skip_begins_where_nobody_was(apart: Readers, fate: Callable[..., None]) -> None:
    shards = apart.daemon.ctl_json("get", "jobs", "run")["num_shards"]
    at = dealt_from(apart.daemon.ctl_json("job", "seek", "run", "--skip", "3"))
    assert at >= apart.beyond()
    check_rows(apart, fate, lost=3 * shards * TEXT.batch)


def test_a_swap_begins_where_nobody_was(
    apart: Readers, fate: Callable[..., None], tmp_path: pathlib.Path, images: pathlib.Path
) -> None:
    second = marked.Text(mark=1, batch=TEXT.batch, last=TEXT.last)
    change = ["apply", "-f", marked.write_pipeline(tmp_path / "second.yaml", images, second)]
    change += ["--job", "run", "--at"]
    passed = apart.daemon.ctl(*change, f"step:0/{FAR - 3}", check=False)
    assert passed.returncode == 1
    assert f"has passed epoch 0, step {FAR - 3}" in passed.stderr
    done = apart.daemon.ctl(*change, "now", "-o", "json", check=False)
    if "is not read from this daemon" in done.stderr:  # nobody knows who feeds the other shard
        step = passed.stderr.strip().removesuffix(".").rsplit(" ", 1)[1]
        done = apart.daemon.ctl(*change, f"step:0/{step}", "-o", "json")
    [swap] = json.loads(done.stdout)["jobs"]
    assert (int(swap["from"].get("epoch", 0)), int(swap["from"]["step"])) >= apart.beyond()
    check_rows(apart, fate)


@pytest.mark.parametrize("then", RESTARTS, ids=lambda restart: restart.__name__)
def test_a_shard_that_is_resized_away_and_back_begins_where_it_was_dealt_in(
    readers: Readers, then: Callable[..., None], wait_until: Callable[..., Any]
) -> None:
    for shard, steps in ((0, NEAR), (1, FAR)):
        readers.start(shard, 2)
        readers.take(shard, steps)
    was_resized_away(readers, wait_until)
    then(readers.daemon)
    readers.come_back(0)
    at = resize(readers.daemon, 2)
    assert at >= readers.beyond()
    then(readers.daemon)
    readers.come_back(0)
    readers.read_up_to(0, at)
    readers.start(1, 2)
    before = len(readers.given)
    readers.take(1, 1)
    first = readers.given[before][1]
    assert (first["epoch"], first["step"]) == at
    check_rows(readers, was_resized_away)


def test_a_change_after_a_restart_and_a_resize_is_not_before_the_resize(
    readers: Readers, wait_until: Callable[..., Any]
) -> None:
    """Shard 1 has read all that the resize left it, shard 0 hardly anything."""
    for shard, steps in ((0, NEAR), (1, FAR)):
        readers.start(shard, 2)
        readers.take(shard, steps)
    resized = resize(readers.daemon, 1)
    readers.finish(1)
    readers.ranks.pop(1).close()
    await_record(readers, wait_until)
    killed(readers.daemon)
    readers.come_back(0)
    skipped = dealt_from(readers.daemon.ctl_json("job", "seek", "run", "--skip", "1"))
    assert skipped >= resized
    check_rows(readers, was_resized_away, lost=TEXT.batch)

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
"""What a loader does while its job is changed: apply(), skip_steps(), and map= ahead of both."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import spdld


def _place(batch: spdld.Batch) -> tuple[int, int]:
    return batch.epoch, batch.step


def test_apply_says_where_the_change_is_and_loses_no_batch(start, loader) -> None:
    daemon = start(steps=9)
    reader = loader()
    batches = iter(reader)
    seen = [_place(next(batches))]
    applied = reader.apply({"size": 192, "flip": True}, allow_schema_change=True)
    assert applied == spdld.Applied(version=2, epoch=1, step=0, tuned=False)
    assert applied.version == 2 and applied.epoch == 1
    assert daemon.applies[0]["vars"] == ["flip=true", "size=192"]
    assert daemon.applies[0]["allow_schema_change"] == 1
    seen += [_place(batch) for batch in batches]
    assert seen == [(0, step) for step in range(9)]
    assert [(batch.epoch, batch.rows) for batch in reader] == [(1, 6)] * 9


@pytest.mark.parametrize(
    ("at", "sent"),
    [
        ("now", (1, 0, 0)),
        ("next-epoch", (2, 0, 0)),
        ("step:3/500", (3, 3, 500)),
        ("step:0/0", (3, 0, 0)),
    ],
)
def test_the_point_of_an_apply_reaches_the_daemon(start, loader, at, sent) -> None:
    daemon = start()
    loader().apply({"a": 1}, at)
    wish = daemon.applies[0]
    assert (wish["at"], wish["epoch"], wish["step"]) == sent
    assert wish["allow_schema_change"] == 0


@pytest.mark.parametrize(
    "at", ["", "soon", "step:3", "step:-1/0", "step:1/x", "step:1/2/3", "step: 1/2", 3, None]
)
def test_a_point_that_is_none_is_a_value_error(loader, at) -> None:
    with pytest.raises(ValueError, match="'next-epoch', 'now' or 'step:EPOCH/STEP'"):
        loader().apply({"a": 1}, at=at)


def test_wrong_variables_are_refused_before_anybody_is_asked(start, loader) -> None:
    daemon = start()
    reader = loader()
    with pytest.raises(ValueError, match="vars is empty"):
        reader.apply({})
    with pytest.raises(TypeError, match="'a' is a list"):
        reader.apply({"a": [1]})
    with pytest.raises(spdld.PipelineError, match="no variable's name"):
        reader.apply({"a=b": 1})
    assert daemon.attaches == []


def test_facts_change_with_the_first_batch_of_the_new_version(start, loader) -> None:
    start(steps=9, rows=4)
    reader = loader()

    def facts() -> tuple[int, ...]:
        return len(reader), reader.num_items, reader.batch_size, reader.pipeline_version

    batches = iter(reader)
    next(batches)
    reader.apply({"size": 192})
    assert [batch.step for batch in batches] == list(range(1, 9))
    assert facts() == (9, 36, 4, 1)
    assert reader.state_dict()["order_digest"] == "order-1"
    batch = next(iter(reader))
    assert batch.pipeline_version == 2 and batch["image"].shape[0] == 6
    assert facts() == (9, 54, 6, 2)
    assert reader.state_dict()["order_digest"] == "order-1-swapped"


def test_views_of_the_old_memory_live_on_beside_the_new(start, loader) -> None:
    start(steps=9)
    reader = loader()
    batches = iter(reader)
    old = next(batches)["image"]
    reader.apply({"size": 192})
    assert [batch.step for batch in batches] == list(range(1, 9))
    new = next(iter(reader))["image"]
    assert (old[:, 0, 0, 0] == [0, 1, 2, 3]).all()
    assert (new[:, 0, 0, 0] == [100, 101, 102, 103, 104, 105]).all()


def test_a_refused_apply_is_a_pipeline_error_and_the_job_goes_on(start, loader) -> None:
    start(refuse_apply=(3, "there is no variable 'sise'; did you mean 'size'?"))
    reader = loader()
    batches = iter(reader)
    next(batches)
    with pytest.raises(spdld.PipelineError, match="did you mean 'size'") as caught:
        reader.apply({"sise": 1})
    assert caught.value.code == 3
    assert [_place(batch) for batch in batches] == [(0, 1), (0, 2)]


def test_apply_asks_again_while_the_job_cannot_change_yet(start, loader) -> None:
    daemon = start(unready=2)
    reader = loader()
    next(iter(reader))
    assert reader.apply({"size": 192}).version == 2
    assert len(daemon.applies) == 3


def test_apply_gives_up_with_the_reason_why_the_job_cannot_change(start, loader) -> None:
    start(unready=1_000_000)
    reader = loader(timeout=0.2)
    batches = iter(reader)
    next(batches)
    with pytest.raises(spdld.PipelineError, match="shard 1 is not back") as caught:
        reader.apply({"size": 192})
    assert caught.value.code == 14
    assert [_place(batch) for batch in batches] == [(0, 1), (0, 2)]


def test_skip_steps_leaves_out_what_comes_next(start, loader) -> None:
    daemon = start(steps=9)
    reader = loader()
    batches = iter(reader)
    next(batches)
    reader.skip_steps(3)
    assert reader.state_dict()["step"] == 4
    assert reader.state_dict()["position"] == 16
    assert _place(next(batches)) == (0, 4)
    reader.skip_steps(0)
    assert daemon.skips == [(1, 3)]
    reader.skip_steps(10**30)
    assert list(batches) == []
    assert _place(next(iter(reader))) == (1, 0)
    with pytest.raises(ValueError, match="steps is -1"):
        reader.skip_steps(-1)


def test_skip_steps_before_the_first_batch_shortens_the_first_epoch(start, loader) -> None:
    start(steps=5)
    reader = loader()
    reader.skip_steps(2)
    assert [_place(batch) for batch in reader] == [(0, 2), (0, 3), (0, 4)]
    assert [_place(batch) for batch in reader] == [(1, step) for step in range(5)]


def test_skip_steps_counts_from_a_ledgers_place(start, loader) -> None:
    start(steps=5)
    reader = loader(start="ledger")
    reader.skip_steps(2)
    assert _place(next(iter(reader))) == (7, 2)


def test_skip_steps_counts_from_what_map_has_handed_out(start, loader) -> None:
    start(steps=20)
    reader = loader(map=_place, map_threads=3)
    batches = iter(reader)
    assert [next(batches), next(batches)] == [(0, 0), (0, 1)]
    reader.skip_steps(2)
    assert reader.state_dict()["step"] == 4
    assert list(batches) == [(0, step) for step in range(4, 20)]


def test_apply_while_map_is_ahead_loses_nothing_and_facts_follow_what_is_handed_out(
    start, loader
) -> None:
    start(steps=12)
    reader = loader(map=lambda batch: (batch.epoch, batch.step, batch.rows), map_threads=3)
    batches = iter(reader)
    seen = [next(batches)]
    reader.apply({"size": 192})
    for result in batches:
        seen.append(result)
        assert (reader.batch_size, reader.pipeline_version) == (4, 1), "map may be ahead of it"
    assert seen == [(0, step, 4) for step in range(12)]
    assert reader.state_dict()["order_digest"] == "order-1"
    after = iter(reader)
    assert next(after) == (1, 0, 6)
    assert (reader.batch_size, reader.pipeline_version) == (6, 2)
    assert list(after) == [(1, step, 6) for step in range(1, 12)]


def test_apply_does_not_wait_for_a_batch_that_map_waits_for(start, loader) -> None:
    daemon = start(steps=9, silent_after=2)
    reader = loader(map=_place, map_threads=2)
    batches = iter(reader)
    assert [next(batches), next(batches)] == [(0, 0), (0, 1)]
    daemon.wait_until(lambda: daemon.outstanding == 0)  # map's threads wait for a third one
    assert reader.apply({"a": 1}).version == 2
    assert reader.apply({"a": 2}).version == 2, "and again"


def test_a_state_before_anything_was_taken_from_map_is_the_start(start, loader) -> None:
    start(steps=9)
    entered = threading.Event()
    go_on = threading.Event()

    def work(batch: spdld.Batch) -> tuple[int, int]:
        entered.set()
        assert go_on.wait(20)
        return _place(batch)

    reader = loader(map=work)
    states = []

    def interrupt(*_: object) -> None:
        states.append(reader.state_dict())
        go_on.set()
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGUSR1, interrupt)
    try:
        killer = threading.Thread(
            target=lambda: (entered.wait(20), os.kill(os.getpid(), signal.SIGUSR1))
        )
        killer.start()
        with pytest.raises(KeyboardInterrupt):
            next(iter(reader))
        killer.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert (states[0]["epoch"], states[0]["step"], states[0]["position"]) == (0, 0, 0)


def test_ctrl_c_ends_an_apply_and_the_loader_goes_on(start, loader) -> None:
    daemon = start(mute=True)
    reader = loader()
    next(iter(reader))
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        reader.apply({"a": 1})
    timer.join()
    daemon.options.mute = False
    assert reader.apply({"a": 1}).version == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"replicas": 2}, "say by replica which"),
        ({"replicas": 2, "replica": 2}, "replica 2 of replicas 2"),
        ({"replicas": 2, "replica": -1}, "replica -1 of replicas 2"),
        ({"replica": 1}, "replica 1 of replicas 1"),
    ],
)
def test_a_replica_that_cannot_be_is_a_value_error(loader, options, says) -> None:
    with pytest.raises(ValueError, match=says):
        loader(job="j", shard=0, num_shards=1, **options)


def test_replicas_need_a_job_and_a_shard(loader) -> None:
    with pytest.raises(spdld.PipelineError, match="2 replicas need shard and num_shards"):
        loader(replicas=2, replica=0)
    with pytest.raises(spdld.PipelineError, match="through a job of one name: name the job"):
        loader(replicas=2, replica=0, shard=0, num_shards=1)

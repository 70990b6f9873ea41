# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
from __future__ import annotations

import functools
import gc
import threading

import numpy as np
import pytest
import spdld
from spdld._map import OrderedMap


def test_results_come_in_order_however_long_each_takes(start, loader) -> None:
    start(steps=8)
    later = {step: threading.Event() for step in range(8)}

    def work(batch: spdld.Batch) -> int:
        step = batch.step
        if step % 2 == 0:  # its successor, on the other thread, must be done first
            assert later[step + 1].wait(20)
        later[step].set()
        return step

    reader = loader(map=work, map_threads=2)
    assert list(reader) == list(range(8))
    assert reader.epoch == 1


def test_map_runs_over_all_epochs(start, loader) -> None:
    start()
    reader = loader(map=lambda batch: (batch.epoch, batch.step))
    assert [list(reader) for _ in range(3)] == [
        [(epoch, step) for step in range(3)] for epoch in range(3)
    ]


def test_map_may_return_none_and_the_batch_itself(start, loader) -> None:
    start()
    assert list(loader(map=lambda batch: None)) == [None] * 3
    assert [batch.step for batch in loader(map=lambda batch: batch)] == [0, 1, 2]


def test_an_exception_comes_out_at_its_batch_and_the_next_one_follows(start, loader) -> None:
    start(steps=5)

    def work(batch: spdld.Batch) -> int:
        if batch.step == 2:
            raise ZeroDivisionError("step 2")
        return batch.step

    batches = iter(loader(map=work))
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(ZeroDivisionError, match="step 2"):
        next(batches)
    assert list(batches) == [3, 4]


def test_the_state_is_after_the_last_result_taken_however_far_map_is_ahead(start, loader) -> None:
    start(steps=9)
    reader = loader(map=lambda batch: batch.step, map_threads=3)
    batches = iter(reader)
    next(batches), next(batches)
    state = reader.state_dict()
    assert (state["epoch"], state["step"], state["position"]) == (0, 2, 8)
    other = loader(map=lambda batch: batch.step)
    other.load_state_dict(state)
    assert list(other) == list(range(2, 9))


def test_break_set_epoch_and_load_drop_what_map_has_ahead(start, loader) -> None:
    start(steps=5)
    reader = loader(map=lambda batch: (batch.epoch, batch.step))
    batches = iter(reader)
    next(batches)
    state = reader.state_dict()
    assert next(iter(reader)) == (1, 0)
    reader.set_epoch(6)
    assert next(iter(reader)) == (6, 0)
    reader.load_state_dict(state)
    assert list(reader) == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_set_epoch_under_map_tells_the_turn_of_the_callers_loop(start, loader) -> None:
    daemon = start(steps=20)
    reader = loader(map=lambda batch: (batch.epoch, batch.step), map_threads=3)
    batches = iter(reader)
    next(batches), next(batches)
    daemon.wait_until(lambda: daemon.released > 2)  # map has read on
    reader.set_epoch(6)
    assert reader.state_dict()["turn"] == 2
    assert next(iter(reader)) == (6, 0)
    assert daemon.seeks == [(2, 6)]
    assert reader.state_dict()["turn"] == 3


def test_handed_is_said_once_the_caller_has_what_map_read_ahead(start, loader) -> None:
    daemon = start(steps=20, tell=(1, 4))
    reader = loader(map=lambda batch: batch.step, map_threads=5)
    batches = iter(reader)
    next(batches)
    daemon.wait_until(lambda: daemon.released > 4)  # map has read on
    assert daemon.handed == []
    next(batches)
    daemon.wait_until(lambda: daemon.handed == [2])
    next(batches), next(batches), next(batches)
    daemon.wait_until(lambda: daemon.handed == [2, 5])


def test_handed_is_not_said_of_what_a_seek_has_dropped(start, loader) -> None:
    daemon = start(steps=20, tell=(3,))
    reader = loader(map=lambda batch: batch.step, map_threads=5)
    batches = iter(reader)
    next(batches), next(batches)
    daemon.wait_until(lambda: daemon.released > 4)
    daemon.options.tell = ()
    reader.set_epoch(6)
    batches = iter(reader)
    assert [next(batches) for _ in range(4)] == [0, 1, 2, 3]
    reader.stats()  # asks the daemon, after all that was said before
    assert daemon.handed == []


def test_handed_is_said_though_map_failed_on_the_batch_that_asked(start, loader) -> None:
    daemon = start(steps=9, tell=(1,))

    def work(batch: spdld.Batch) -> int:
        if batch.step == 1:
            raise ZeroDivisionError
        return batch.step

    batches = iter(loader(map=work))
    next(batches)
    with pytest.raises(ZeroDivisionError):
        next(batches)
    assert next(batches) == 2
    daemon.wait_until(lambda: daemon.handed == [2])


def test_the_daemon_is_told_for_how_long_map_runs(start, loader) -> None:
    daemon = start()
    with loader(map=lambda batch: batch.step) as reader:
        while not (daemon.waited and daemon.waited[-1].map_ms):
            assert list(reader) == [0, 1, 2]
        told = daemon.waited[-1]
        assert told.map_ms <= reader.stats()["map_s"] * 1000
    assert told.steps > 0


def test_the_time_of_map_counts_though_it_fails(start, loader) -> None:
    start()

    def work(batch: spdld.Batch) -> None:
        raise ZeroDivisionError

    reader = loader(map=work)
    with pytest.raises(ZeroDivisionError):
        next(iter(reader))
    assert reader.stats()["map_s"] > 0


@pytest.mark.parametrize("prefetch", [2, 3, 8])
def test_results_that_hold_leases_starve_nobody(start, loader, prefetch) -> None:
    start(steps=40)
    steps = []
    for batch in loader(map=lambda batch: batch, map_threads=3, prefetch=prefetch):
        steps.append(batch.step)
    assert steps == list(range(40))


def test_keeping_all_results_that_hold_leases_is_a_lease_error(start, loader) -> None:
    start(steps=40)
    kept = []
    with pytest.raises(spdld.LeaseError):
        for batch in loader(map=lambda batch: batch, prefetch=3):
            kept.append(batch)
    assert [batch.step for batch in kept] == [0, 1, 2]


def test_after_a_lease_error_letting_go_is_enough(start, loader) -> None:
    start(steps=40)
    batches = iter(loader(map=lambda batch: batch, prefetch=2))
    kept = [next(batches), next(batches)]
    with pytest.raises(spdld.LeaseError):
        next(batches)
    kept.clear()
    assert next(batches).step == 2


def test_no_more_results_are_made_than_the_bound(start, loader) -> None:
    daemon = start(steps=40)
    made: list[int] = []
    changed = threading.Condition()

    def work(batch: spdld.Batch) -> int:
        with changed:
            made.append(batch.step)
            changed.notify_all()
        return batch.step

    batches = iter(loader(map=work, map_threads=2, prefetch=8))
    next(batches)
    with changed:
        assert changed.wait_for(lambda: len(made) == 4, 20)
    daemon.wait_until(lambda: daemon.released == 4)
    assert len(made) == 4  # one taken, two being made and one waiting at most


def test_what_ends_the_loader_comes_out_of_next(start, loader) -> None:
    start(refuse="no such pipeline")
    batches = iter(loader(map=lambda batch: batch))
    with pytest.raises(spdld.PipelineError, match="no such pipeline"):
        next(batches)


def test_close_ends_the_threads_and_all_leases(start, loader) -> None:
    daemon = start(steps=40)
    before = set(threading.enumerate())
    reader = loader(map=lambda batch: batch, map_threads=3)
    next(iter(reader))
    own = set(threading.enumerate()) - before
    assert len(own) == 3
    reader.close()
    gc.collect()
    assert not any(thread.is_alive() for thread in own)
    daemon.wait_until(lambda: daemon.outstanding == 0 and not daemon._consumers)


def test_dropping_the_loader_ends_the_threads(start, loader) -> None:
    daemon = start(steps=40)
    before = set(threading.enumerate())
    reader = loader(map=lambda batch: batch.step, map_threads=3)
    next(iter(reader))
    begun = set(threading.enumerate()) - before
    threads = [one for one in begun if one.name.startswith("spdld-map-")]
    assert len(threads) == 3
    del reader
    gc.collect()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    daemon.wait_until(lambda: not daemon._consumers)


def test_an_ordered_map_that_was_stopped_gives_no_more() -> None:
    count = iter(range(100))
    ordered = OrderedMap(lambda: (next(count), None), lambda number: number, 2)
    assert [ordered.get()[0] for _ in range(10)] == list(range(10))
    ordered.stop()
    ordered.stop()
    with pytest.raises(RuntimeError, match="closed"):
        ordered.get()


def test_a_pull_that_fails_ends_an_ordered_map() -> None:
    numbers = iter([1, 2])
    ordered = OrderedMap(lambda: (next(numbers), None), lambda number: number, 1)
    assert [ordered.get()[0], ordered.get()[0]] == [1, 2]
    with pytest.raises(StopIteration):
        ordered.get()
    ordered.stop()


def test_map_may_ask_for_uris(start, loader) -> None:
    start(steps=6)
    names = list(loader(map=lambda batch: batch.uris, map_threads=3))
    assert names == [[f"class/{4 * step + row}.jpg" for row in range(4)] for step in range(6)]


def test_a_maps_generator_is_the_same_for_the_same_batch(start, loader) -> None:
    start(steps=6)

    def drawn(seed: int, threads: int, epochs: int) -> list[list[float]]:
        reader = loader(
            seed=seed, map=lambda batch, rng: rng.random(2).tolist(), map_threads=threads
        )
        return [draw for _ in range(epochs) for draw in reader]

    draws = drawn(5, 1, 2)
    assert drawn(5, 3, 2) == draws
    assert len({tuple(draw) for draw in draws}) == 12
    assert drawn(6, 1, 1) != draws[:6]


def test_map_is_given_a_generator_only_where_it_asks_for_one(start, loader) -> None:
    start(steps=1)

    def asks(batch, rng=None) -> bool:
        return isinstance(rng, np.random.Generator)

    @functools.wraps(asks)
    def wraps(batch) -> bool:
        return asks(batch)

    def takes_anything(batch, **options) -> bool:
        return bool(options)

    def by_position(batch, rng="own", /) -> bool:
        return rng != "own"

    class Callable:
        def __call__(self, batch, *, rng) -> bool:
            return asks(batch, rng)

    outcomes = {
        asks: True,
        Callable(): True,
        functools.partial(asks): True,
        functools.partial(asks, rng="own"): False,
        wraps: False,
        takes_anything: False,
        by_position: False,
    }
    for function, given in outcomes.items():
        assert list(loader(map=function)) == [given], function
    assert list(loader(map=len)) == [2]


def test_map_that_cannot_be_called_with_a_batch_is_refused_at_once(loader) -> None:
    for function in (lambda batch, gen: gen, lambda rng, batch: batch, lambda: 1):
        with pytest.raises(TypeError, match="map is called with a batch, and with rng= if"):
            loader(map=function)


def test_shards_of_a_job_draw_differently_in_map(start, loader) -> None:
    start(steps=2)

    def drawn(shard: int) -> list[float]:
        reader = loader(job="j", rank=shard, world_size=2, map=lambda batch, *, rng: rng.random())
        return list(reader)

    assert drawn(0) != drawn(1)

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import weakref
from itertools import pairwise
from types import SimpleNamespace

import pytest
import spdld
from fake_daemon import RUN

IN_RUN = ("run", "branch", "turn")


def places(loader: spdld.Loader) -> list[tuple[int, int]]:
    return [(batch.epoch, batch.step) for batch in loader]


def test_a_for_loop_is_one_epoch_and_the_next_one_the_next(start, loader) -> None:
    start()
    reader = loader()
    assert places(reader) == [(0, 0), (0, 1), (0, 2)]
    assert reader.epoch == 1
    assert places(reader) == [(1, 0), (1, 1), (1, 2)]


def test_nothing_is_sent_before_the_first_batch_is_asked_for(start, loader) -> None:
    daemon = start()
    reader = loader()
    iter(reader)
    assert daemon.attaches == [] and reader.epoch == 0
    next(iter(reader))
    assert len(daemon.attaches) == 1


def test_after_break_the_next_loop_is_the_following_epoch(start, loader) -> None:
    start()
    reader = loader()
    for _ in reader:
        break
    assert places(reader) == [(1, 0), (1, 1), (1, 2)]


def test_after_break_at_the_last_batch_no_epoch_is_skipped_or_empty(start, loader) -> None:
    start()
    reader = loader()
    for batch in reader:
        if batch.step == 2:
            break
    assert places(reader) == [(1, 0), (1, 1), (1, 2)]


def test_iter_without_next_skips_nothing(start, loader) -> None:
    start()
    reader = loader()
    iter(reader), iter(reader)
    assert places(reader) == [(0, 0), (0, 1), (0, 2)]


def test_a_new_iteration_ends_the_one_before(start, loader) -> None:
    start()
    reader = loader()
    first = iter(reader)
    next(first)
    second = iter(reader)
    with pytest.raises(RuntimeError, match="another iteration"):
        next(first)
    assert next(second).epoch == 1


def test_an_exhausted_iterator_stays_so(start, loader) -> None:
    start(steps=1)
    batches = iter(loader())
    next(batches)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(batches)


def test_after_the_jobs_last_epoch_loops_are_empty(start, loader) -> None:
    start(epochs=2)
    reader = loader()
    assert [len(places(reader)) for _ in range(4)] == [3, 3, 0, 0]


def test_set_epoch_goes_there(start, loader) -> None:
    start()
    reader = loader()
    reader.set_epoch(5)
    assert reader.epoch == 5
    assert places(reader) == [(5, 0), (5, 1), (5, 2)]
    reader.set_epoch(2)
    assert places(reader)[0] == (2, 0)


def test_set_epoch_in_the_usual_loop_costs_no_seek(start, loader) -> None:
    daemon = start()
    reader = loader()
    for epoch in range(3):
        reader.set_epoch(epoch)
        assert places(reader) == [(epoch, 0), (epoch, 1), (epoch, 2)]
    assert daemon.seeks == []


def test_set_epoch_in_the_middle_of_that_epoch_starts_it_again(start, loader) -> None:
    start()
    reader = loader()
    next(iter(reader))
    reader.set_epoch(0)
    assert places(reader) == [(0, 0), (0, 1), (0, 2)]


def test_set_epoch_overrides_the_ledger(start, loader) -> None:
    start()
    assert places(loader(start="ledger"))[0] == (7, 0)
    reader = loader(start="ledger")
    reader.set_epoch(0)
    assert places(reader)[0] == (0, 0)


def test_the_state_of_a_loader_that_starts_by_the_ledger_is_where_the_ledger_has_it(
    start, loader
) -> None:
    start()
    state = loader(start="ledger").state_dict()
    assert (state["epoch"], state["step"]) == (7, 0)


def test_a_negative_epoch_is_refused(loader) -> None:
    with pytest.raises(ValueError, match="count from 0"):
        loader().set_epoch(-1)


def test_the_state_is_the_position_after_the_last_batch_handed_out(start, loader) -> None:
    start(steps=5)
    reader = loader()
    batches = iter(reader)
    next(batches), next(batches)
    state = reader.state_dict()
    assert state == {
        "version": 1,
        "order_digest": "order-1",
        "seed": 42,
        "epoch": 0,
        "position": 8,
        "step": 2,
        "run": RUN,
        "branch": 0,
        "turn": 2,
    }
    assert all(type(value) in (int, str) for value in state.values())


@pytest.mark.parametrize("map", [None, lambda batch: batch])
def test_each_batch_knows_the_state_behind_it(start, loader, map) -> None:
    start(steps=5)
    reader = loader(map=map)
    states = []
    for batch in reader:
        assert batch.state == reader.state_dict() == batch.copy().state
        states.append(batch.state)
    ahead = loader()
    batches = iter(ahead)
    in_hand, _ = next(batches), next(batches)
    assert in_hand.state == states[0]
    other = loader()
    other.load_state_dict(in_hand.state)
    assert places(other) == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_what_a_dataloader_has_and_a_loader_has_not_is_said(loader) -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'dataset': .* loader.num_items"):
        _ = loader().dataset
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = loader().nonsense


def test_a_loaded_state_goes_on_exactly_there(start, loader) -> None:
    daemon = start(steps=5)
    reader = loader()
    for batch in reader:
        if batch.step == 2:
            break
    state = reader.state_dict()
    other = loader()
    other.load_state_dict(state)
    assert places(other) == [(0, 3), (0, 4)]
    assert daemon.attaches[1]["start"] == 1
    assert ("order_digest", "order-1") in daemon.attaches[1]["texts"]
    assert places(other)[0] == (1, 0)


def test_a_state_says_the_turn_in_the_run_and_an_attach_tells_it(start, loader) -> None:
    daemon = start(steps=5, branch=3)
    reader = loader()
    batches = iter(reader)
    next(batches), next(batches)
    state = reader.state_dict()
    assert (state["run"], state["branch"], state["turn"]) == (RUN, 3, 2)
    other = loader()
    other.load_state_dict(state)
    assert other.state_dict() == state
    next(iter(other))
    attach = daemon.attaches[1]
    assert (attach["run"], attach["branch"], attach["turn"]) == (RUN, 3, 2)
    assert other.state_dict()["turn"] == 3


@pytest.mark.parametrize("earlier", [{}, {"moves": 3}])
def test_a_state_without_a_run_is_a_place_alone(start, loader, earlier) -> None:
    daemon = start(steps=5)
    reader = loader()
    next(iter(reader))
    state = {key: value for key, value in reader.state_dict().items() if key not in IN_RUN}
    other = loader()
    other.load_state_dict({**state, **earlier})
    assert other.state_dict() == state
    assert places(other)[0] == (0, 1)
    attach = daemon.attaches[1]
    assert (attach["run"], attach["branch"], attach["turn"]) == (0, 0, 0)


def test_an_epochs_end_keeps_the_turn(start, loader) -> None:
    start(steps=2)
    reader = loader()
    assert places(reader) == [(0, 0), (0, 1)]
    state = reader.state_dict()
    assert (state["epoch"], state["step"], state["turn"]) == (1, 0, 2)
    next(iter(reader))
    assert reader.state_dict()["turn"] == 3


def test_a_reconnect_tells_run_branch_and_turn(start, loader) -> None:
    daemon = start(steps=9, branch=2, batches_before_hangup=5)
    reader = loader()
    assert len(places(reader)) == 9
    attach = daemon.attaches[1]
    assert attach["reconnect"] == 1
    assert (attach["run"], attach["branch"], attach["turn"]) == (RUN, 2, attach["step"])
    assert reader.state_dict()["turn"] == 9


def test_a_reset_by_the_daemon_changes_no_state(start, loader) -> None:
    daemon = start(steps=9)
    reader = loader(prefetch=2)
    batches = iter(reader)
    held = [next(batches)]
    daemon.move(5, 1)
    held.append(next(batches))
    state = reader.state_dict()
    with pytest.raises(spdld.LeaseError):  # the reset was read by then
        next(batches)
    assert reader.state_dict() == state
    held.clear()
    batch = next(batches)
    assert (batch.epoch, batch.step) == (5, 1)
    assert reader.state_dict() == {**state, "epoch": 5, "step": 2, "position": 8, "turn": 3}


def test_handed_is_said_of_the_batches_that_ask(start, loader) -> None:
    daemon = start(steps=4, tell=(1, 5))
    reader = loader()
    batches = iter(reader)
    next(batches)
    reader.stats()  # asks the daemon, after all that was said before
    assert daemon.handed == []
    next(batches)
    reader.stats()
    assert daemon.handed == [2]
    assert len(list(batches)) == 2
    batches = iter(reader)
    next(batches), next(batches)
    reader.stats()
    assert daemon.handed == [2, 6]


def test_set_epoch_tells_the_turn_of_the_loop(start, loader) -> None:
    daemon = start(steps=9)
    reader = loader()
    batches = iter(reader)
    next(batches), next(batches)
    reader.set_epoch(4)
    assert places(reader)[0] == (4, 0)
    assert daemon.seeks == [(2, 4)]
    assert reader.state_dict()["turn"] == 11


def test_a_state_that_is_loaded_on_a_live_loader_attaches_anew(start, loader) -> None:
    daemon = start(steps=5)
    reader = loader()
    batches = iter(reader)
    next(batches)
    state = reader.state_dict()
    held = next(batches)
    reader.load_state_dict(state)
    assert reader.state_dict() == state
    assert places(reader) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert not daemon.seeks
    attach = daemon.attaches[1]
    assert (attach["start"], attach["step"], attach["turn"]) == (1, 1, 1)
    assert ("order_digest", "order-1") in attach["texts"]
    assert held["label"].shape == (4,)


def test_a_loader_that_has_handed_out_nothing_attaches_where_its_state_says(start, loader) -> None:
    daemon = start(steps=5)
    reader = loader()
    next(iter(reader))
    other = loader()
    assert len(other) == 5  # attached by that
    other.load_state_dict(reader.state_dict())
    assert places(other)[0] == (0, 1)
    assert not daemon.seeks
    assert daemon.attaches[2]["reconnect"] == 1
    assert (daemon.attaches[2]["start"], daemon.attaches[2]["step"]) == (1, 1)


def test_a_state_may_be_loaded_in_the_middle_of_an_iteration(start, loader) -> None:
    start(steps=5)
    reader = loader()
    batches = iter(reader)
    next(batches)
    state = reader.state_dict()
    next(batches), next(batches)
    reader.load_state_dict(state)
    assert places(reader) == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_a_state_of_another_order_is_refused(start, loader) -> None:
    start()
    reader = loader()
    len(reader)
    state = {**reader.state_dict(), "order_digest": "order-2"}
    with pytest.raises(spdld.PipelineError, match="another order"):
        reader.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2"),
        ({"epoch": -1}, "state\\['epoch'\\] is -1"),
        ({"step": 1.5}, "state\\['step'\\] is 1.5"),
        ({"position": None}, "state\\['position'\\] is None"),
        ({"seed": True}, "state\\['seed'\\] is True"),
        ({"order_digest": 3}, "state\\['order_digest'\\] is 3"),
        ({"run": -1}, "state\\['run'\\] is -1"),
        ({"run": 2**64}, "state\\['run'\\] is 18446744073709551616"),
        ({"branch": "1"}, "state\\['branch'\\] is '1'"),
        ({"branch": 2**32}, "state\\['branch'\\] is 4294967296"),
        ({"turn": -1}, "state\\['turn'\\] is -1"),
        ({"turn": 1.0}, "state\\['turn'\\] is 1.0"),
    ],
)
def test_a_state_that_is_none_is_refused(loader, change, message) -> None:
    reader = loader()
    with pytest.raises(ValueError, match=message):
        reader.load_state_dict({**reader.state_dict(), **change})
    with pytest.raises(ValueError, match="list"):
        reader.load_state_dict([])


def test_len_is_the_steps_of_an_epoch(start, loader) -> None:
    start(steps=7)
    reader = loader()
    assert len(reader) == 7
    next(iter(reader))
    assert len(reader) == 7


def test_class_names_that_are_not_utf8_are_those_of_the_file_system(start, loader) -> None:
    names = [os.fsdecode(name) for name in (b"cl\xff\nass", "gr\u00fcn".encode())]
    start(classes=tuple(names))
    reader = loader()
    assert reader.classes == names
    assert [os.fsencode(name) for name in reader.class_to_idx] == [
        b"cl\xff\nass",
        "gr\u00fcn".encode(),
    ]


def test_the_loader_knows_the_dataset(start, loader) -> None:
    start()
    reader = loader()
    assert reader.classes == ["cat", "dog"]
    assert reader.class_to_idx == {"cat": 0, "dog": 1}
    assert (reader.num_items, reader.batch_size) == (12, 4)
    assert "order-1" in reader.fingerprint


def test_stats_count_here_and_carry_the_daemons(start, loader) -> None:
    start()
    reader = loader()
    batch = next(iter(reader))
    stats = reader.stats()
    assert stats["batches"] == 1 and stats["held"] == 1 and stats["credits"] == 4
    assert stats["server"] == {"stages": []}
    assert stats["between_s"] == stats["map_s"] == 0
    del batch
    next(iter(reader))
    assert reader.stats()["between_s"] > 0
    assert reader.stats()["map_s"] == 0, "there is no map"


def test_options_reach_the_daemon(start, loader) -> None:
    daemon = start()
    reader = loader(
        job="run-7",
        shard=3,
        num_shards=8,
        replica=1,
        replicas=2,
        seed=-5,
        batch_size=16,
        prefetch=6,
        vars={"size": 224, "flip": True, "root": "/data"},
    )
    len(reader)
    attach = daemon.attaches[0]
    assert (attach["shard"], attach["num_shards"], attach["replicas"]) == (3, 8, 2)
    assert (attach["seed"], attach["has_seed"], attach["batch_size"]) == (-5, 1, 16)
    assert attach["credits"] == 6
    assert {("pipeline", "numbers"), ("job", "run-7"), ("replica", "1")} <= set(attach["texts"])
    assert {("var", "size=224"), ("var", "flip=true"), ("var", "root=/data")} <= set(
        attach["texts"]
    )


def test_a_yaml_file_is_sent_with_its_place_and_its_environment(
    start, loader, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("DATA_ROOT", "/mnt/data")
    monkeypatch.setenv("SECRET", "not named, not sent")
    daemon = start()
    path = tmp_path / "train.yaml"
    path.write_text("pipeline: numbers\nvars: {root: '${env:DATA_ROOT}'}\n" + "# x\n" * 20000)
    len(loader(path))
    texts = daemon.attaches[0]["texts"]
    assert daemon.yaml[0] == path.read_bytes()
    assert ("pipeline", "numbers") in texts and ("pipeline_file", str(path)) in texts
    assert [text for key, text in texts if key == "env"] == ["DATA_ROOT=/mnt/data"]


def test_a_lost_daemon_is_met_again_and_no_batch_is_lost_or_comes_twice(start, loader) -> None:
    daemon = start(steps=9, batches_before_hangup=5)
    reader = loader()
    assert places(reader) == [(0, step) for step in range(9)]
    assert reader.stats()["reconnects"] == 1
    assert [attach["reconnect"] for attach in daemon.attaches] == [0, 1]


def test_a_closed_loader_says_so_and_held_batches_stay_readable(start, loader) -> None:
    start()
    with loader() as reader:
        batches = iter(reader)
        batch = next(batches)
    assert (batch["image"][1] == 1).all()
    with pytest.raises(RuntimeError, match="closed"):
        next(batches)
    with pytest.raises(spdld.ConnectionError, match="closed"):
        len(reader)
    reader.close()


def test_no_daemon_is_a_connection_error_that_names_the_place(loader, tmp_path) -> None:
    with pytest.raises(spdld.ConnectionError, match=str(tmp_path)) as caught:
        len(loader(timeout=0.2))
    assert isinstance(caught.value, ConnectionError) and isinstance(caught.value, spdld.Error)
    assert caught.value.code == 14


def test_a_refusal_is_a_pipeline_error_in_the_daemons_words(start, loader) -> None:
    start(refuse="the job 'run-7' has 4 shards, not 8")
    with pytest.raises(spdld.PipelineError, match="has 4 shards, not 8") as caught:
        next(iter(loader()))
    assert caught.value.code == 9


def test_silence_is_a_timeout_error(start, loader) -> None:
    start(silent=True)
    with pytest.raises(spdld.TimeoutError) as caught:
        next(iter(loader(timeout=0.3)))
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "begin"}, "'fresh' or 'ledger'"),
        ({"timeout": 0}, "more than 0"),
        ({"output": "tensor"}, "'batch', 'torch' or a tuple"),
        ({"output": ()}, "at least one field"),
        ({"rank": 4, "world_size": 4}, "ranks are 0 to 3"),
        ({"rank": -1}, "counts from 0"),
        ({"world_size": 0}, "at least 1"),
        ({"shard": 2, "num_shards": 2}, "count from 0"),
        ({"map_threads": 0}, "at least one thread"),
    ],
)
def test_wrong_arguments_are_value_errors(loader, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        loader(**options)


def test_prefetch_out_of_bounds_is_refused(loader) -> None:
    with pytest.raises(spdld.Error, match="prefetch is 1"):
        loader(prefetch=1)


def test_a_dropped_loader_detaches(start, loader) -> None:
    daemon = start()
    reader = loader()
    next(iter(reader))
    gone = weakref.ref(reader)
    del reader
    gc.collect()
    assert gone() is None
    daemon.wait_until(lambda: not daemon._consumers)


def test_a_thread_waits_its_turn_while_another_waits_for_the_daemon(start, loader) -> None:
    start(silent=True)
    reader = loader(timeout=0.3)
    caught: list[type] = []

    def read() -> None:
        try:
            len(reader)
        except spdld.Error as error:
            caught.append(type(error))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught == [spdld.TimeoutError] * 3


@pytest.mark.parametrize("options", [{}, {"map": lambda batch: batch}], ids=["plain", "map"])
def test_ctrl_c_ends_a_wait(start, loader, options) -> None:
    daemon = start(silent=True)
    reader = loader(**options)

    def interrupt() -> None:
        daemon.wait_until(lambda: daemon.attaches)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(reader))
    thread.join()
    reader.close()


def test_a_signal_handler_may_save_the_state_in_the_middle_of_a_wait(start, loader) -> None:
    daemon = start(silent=True)
    reader = loader()
    reader.set_epoch(3)
    saved: list[dict] = []

    def save(number: int, frame: object) -> None:
        saved.append(reader.state_dict())
        with pytest.raises(spdld.LeaseError, match="in the middle of a call"):
            reader.set_epoch(9)
        raise SystemExit

    before = signal.signal(signal.SIGUSR1, save)

    def interrupt() -> None:
        daemon.wait_until(lambda: daemon.attaches)
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(SystemExit):
            next(iter(reader))
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join()
    assert saved[0]["epoch"] == 3


def test_a_wait_lets_other_threads_run(start, loader) -> None:
    daemon = start(silent=True)
    ran = threading.Event()

    def work() -> None:
        daemon.wait_until(lambda: daemon.attaches)
        ran.set()

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(spdld.TimeoutError):
        next(iter(loader(timeout=1.0)))
    assert ran.is_set()
    thread.join()


def test_why_a_wait_takes_long_is_logged(loader, caplog, monkeypatch) -> None:
    given: dict = {}

    class Placed(SimpleNamespace):
        __slots__ = ("__weakref__",)

    placed = Placed(shard=0, num_shards=1, job="", placed_by="nothing", address="")
    monkeypatch.setattr(
        "spdld._core.Loader", lambda name, **options: given.update(options) or placed
    )
    loader()
    with caplog.at_level(logging.WARNING, logger="spdld"):
        given["on_notice"]("waits for step 3 of epoch 0: indexing, 7 of 9")
    assert caplog.messages == ["waits for step 3 of epoch 0: indexing, 7 of 9"]


def test_a_loader_in_a_global_does_not_trouble_the_interpreters_end(start, tmp_path) -> None:
    start()
    code = f"""
        import spdld
        loader = spdld.Loader("numbers", address={str(tmp_path)!r}, map=lambda batch: batch)
        batch = next(iter(loader))
        image = batch["image"]
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch_size": "32"}, "batch_size is '32', a str: give a whole number"),
        ({"seed": 1.5}, "seed is 1.5, a float: give a whole number"),
        ({"rank": True, "world_size": 2}, "rank is True, a bool: give a whole number"),
        ({"prefetch": [4]}, r"prefetch is \[4\], a list: give a whole number"),
        ({"job": 7}, "job is 7, a int: give a text"),
        ({"timeout": "60"}, "timeout is '60', a str: give seconds"),
        ({"map": "fn"}, "map is 'fn', a str: give a function"),
    ],
)
def test_an_argument_of_the_wrong_type_is_told_in_a_sentence(loader, options, told) -> None:
    with pytest.raises(TypeError, match=told):
        loader(**options)


def test_a_batch_by_number_is_an_error_that_says_what_to_write(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    with pytest.raises(TypeError, match=r"batch\['image'\], not batch\[0\]"):
        batch[0]
    assert 0 not in batch


def test_numpys_whole_numbers_are_taken(loader) -> None:
    np = pytest.importorskip("numpy")
    reader = loader(rank=np.int64(1), world_size=np.int32(4), job="j")
    assert (reader.shard, reader.num_shards) == (1, 4)


def test_the_daemon_is_told_which_process_reads(start, loader) -> None:
    daemon = start()
    len(loader())
    [attach] = daemon.attaches
    told = dict(attach["texts"])
    assert told["pid"] == str(os.getpid())
    assert told["host"] == socket.gethostname()
    assert "python" in told["command"] and "\0" not in told["command"]


def test_the_daemon_is_told_how_long_its_consumer_waits(start, loader) -> None:
    daemon = start(steps=9, silent_after=2)
    with pytest.raises(spdld.TimeoutError):
        list(loader(timeout=2.5))
    times = [told.waited_ms for told in daemon.waited]
    assert times[-1] >= 1000 and times == sorted(times)
    last = daemon.waited[-1]
    assert 1 <= last.waits <= 3 and last.steps == 2
    assert sum(last.waits_by_length) == last.waits - 1, "one goes on"
    # Of the one long wait, it is told at most once a second.
    assert all(later - earlier >= 900 for earlier, later in pairwise(times[1:]))


def test_arguments_that_a_loader_does_not_have_say_what_is_meant(loader) -> None:
    with pytest.raises(TypeError, match="'num_workers': leave it out"):
        loader(num_workers=3)
    with pytest.raises(TypeError, match="'batchsize': did you mean batch_size"):
        loader(batchsize=3)
    with pytest.raises(TypeError, match="'cuda': there are pipeline, job, rank"):
        loader(cuda=True)

    class Own(spdld.Loader):
        def __init__(self, *positional, extra, **options) -> None:
            super().__init__(*positional, **options)
            self.extra = extra

    assert Own("numbers", extra=1, batch_size=4).extra == 1
    with pytest.raises(TypeError, match="num_workers"):
        Own("numbers", extra=1, num_workers=3)


def test_warnings_of_the_pipeline_are_logged_once(start, loader, caplog) -> None:
    warnings = ("normalize: mean looks like one of 0 to 255", "no item of class 'b'")
    daemon = start(warnings=warnings, batches_before_hangup=2)
    with caplog.at_level(logging.WARNING, logger="spdld"):
        assert len(list(loader())) == 3
    assert len(daemon.attaches) > 1, "it has reconnected"
    for warning in warnings:
        assert [warning in message for message in caplog.messages].count(True) == 1


def test_a_notice_that_comes_between_batches_is_logged(start, loader, caplog) -> None:
    start(notice="the directory lists 501 items now")
    with caplog.at_level(logging.WARNING, logger="spdld"):
        assert len(list(loader())) == 3
    assert caplog.messages == ["the directory lists 501 items now"]

# SPDX-License-Identifier: Apache-2.0
"""Storage that does not answer: whom that stops, what they are told, and that nothing is lost."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Callable
from typing import Any

import pytest
from daemon import build_dir
from integration.hung_mount import GETATTR, LOOKUP, OPEN, OPENDIR, READ, HungMount
from integration.ranks import Rank, indices
from integration.threads import threads_of

ITEMS, BATCH = 24, 4
# Enough for an item that is looked at when a cache is made, and that no rank comes to.
MANY_ITEMS = 256
IO_THREADS = 4
# What a device that is alone may have of them.
ALONE = IO_THREADS - 1
# Longer than the time between two of the daemon's words.
TIMEOUT_S = 5.0


@pytest.fixture
def dataset(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=ITEMS)


@pytest.fixture
def mount(mount: Callable[..., HungMount], dataset: Any) -> Callable[..., HungMount]:
    """mount(name): the dataset, or `source`, at tmp_path/name."""

    def make(name: str, source: pathlib.Path | None = None, **options: Any) -> HungMount:
        return mount(name, source or dataset.root, **options)

    return make


@pytest.fixture
def sick(mount: Callable[..., HungMount]) -> HungMount:
    return mount("sick")


@pytest.fixture
def serve(
    make_daemon: Callable[..., Any],
    write_large_pipeline: Callable[..., pathlib.Path],
    dataset: Any,
    tmp_path: pathlib.Path,
) -> Callable[..., Any]:
    """serve(name, …, io_threads=…, **sections): a daemon with a pipeline of each mount's name."""

    def write(name: str, **sections: Any) -> pathlib.Path:
        files = {"root": str(tmp_path / name), "pattern": "**/*.jpg", "label": "parent_dir"}
        return write_large_pipeline(
            dataset,
            name=name,
            source={"files": files},
            **{"batch": {"size": BATCH, "last": "keep"}, **sections},
        )

    def start(*names: str, io_threads: int = IO_THREADS, **sections: Any) -> Any:
        return make_daemon(
            pipelines=[write(name, **sections) for name in names],
            settings={"executor": {"cpu_threads": 2, "io_threads": io_threads}},
        )

    return start


def test_a_mount_that_hangs_stops_its_own_job_alone(
    mount: Callable[..., HungMount],
    sick: HungMount,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    mount("well")
    daemon = serve("sick", "well")
    order = [batch["indices"] for batch in start_rank(daemon, "well").rest_of_epoch()]
    stuck, other = start_rank(daemon, "sick", job="stuck"), start_rank(daemon, "well", job="other")
    sick.hang()
    stuck.ask("next")
    wait_until(lambda: sick.waiting == ALONE, "the hung mount's share of the threads")
    for epoch in range(3):
        batches = other.rest_of_epoch()
        assert {batch["epoch"] for batch in batches} == {epoch}
        if epoch == 0:
            assert [batch["indices"] for batch in batches] == order
        assert sorted(indices(batches)) == list(range(ITEMS))
    # However much of it is wanted, it gets no more of them.
    assert sick.waiting == ALONE
    assert not stuck.answered()
    sick.let_go()
    batches = [stuck.answer(), *stuck.rest_of_epoch()]
    assert [batch["indices"] for batch in batches] == order


def test_the_storage_that_reads_wait_for_is_named(
    sick: HungMount,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    tmp_path: pathlib.Path,
) -> None:
    daemon = serve("sick")
    start_rank(daemon, "sick").rest_of_epoch()

    def storage() -> dict[str, Any]:
        found = daemon.ctl_json("get", "storage")
        return next(of for of in found if of["mount"] == str(tmp_path / "sick"))

    assert storage()["reads"] > 0
    assert storage()["served_s"] > 0
    assert (storage()["reading"], storage()["stuck"], storage()["longest_s"]) == (0, 0, 0)
    rank = start_rank(daemon, "sick", job="another")
    sick.hang()
    rank.ask("next")
    # Beyond what may run at once they wait in line, and from a second on they are stuck.
    wait_until(lambda: storage()["stuck"] == ALONE, "calls that are stuck")
    assert storage()["reading"] == ALONE
    assert storage()["most"] < ALONE, "its share beside others"
    assert storage()["longest_s"] > 0
    assert str(tmp_path / "sick") in daemon.ctl("get", "storage").stdout
    sick.let_go()
    rank.answer()


@pytest.mark.parametrize("linked", [False, True], ids=["direct", "links"])
@pytest.mark.parametrize(
    "call", [LOOKUP, GETATTR, OPEN, READ], ids=["lookup", "getattr", "open", "read"]
)
def test_a_mount_that_hangs_in_any_call_in_mid_epoch_stops_its_own_job_alone(
    mount: Callable[..., HungMount],
    dataset: Any,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    tmp_path: pathlib.Path,
    call: int,
    linked: bool,
) -> None:
    mount("well")
    sick = mount("sick", valid_s=0)
    if linked:
        for file in dataset.files:
            link = tmp_path / "links" / file.relative_to(dataset.root)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(tmp_path / "sick" / file.relative_to(dataset.root))
    name = "links" if linked else "sick"
    daemon = serve(name, "well")
    reader = start_rank(daemon, name)
    order = [batch["indices"] for batch in reader.rest_of_epoch()]
    reader.do("close")  # what it has read ahead would spare the next one its reads
    wait_until(lambda: daemon.ctl_json("get", "sessions") == [], "the reader's end")
    stuck, other = start_rank(daemon, name, job="stuck"), start_rank(daemon, "well", job="other")
    first = stuck.next()
    sick.hang(call=call)
    stuck.ask("next")
    wait_until(lambda: sick.waiting > 0, "a call that hangs")
    for _ in range(3):
        assert sorted(indices(other.rest_of_epoch())) == list(range(ITEMS))
    assert sick.waiting > 0
    sick.let_go()
    batches = [first, stuck.answer(), *stuck.rest_of_epoch()]
    assert [batch["indices"] for batch in batches] == order


def test_a_rank_is_told_which_item_does_not_come_and_goes_on_when_it_does(
    sick: HungMount,
    dataset: Any,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
) -> None:
    daemon = serve("sick")
    order = [batch["indices"] for batch in start_rank(daemon, "sick").rest_of_epoch()]
    rank = start_rank(daemon, "sick", job="run", timeout=TIMEOUT_S)
    sick.hang()
    for _ in range(2):  # asked again, it says the same again
        refused = rank.do("next")
        assert refused["error"] == "TimeoutError", refused
        said = refused["message"]
        assert "no headway for 5000 ms while waiting for step 0 of epoch 0 of 'sick'" in said
        named = [
            item
            for item in order[0]
            if f"item {item} ({dataset.files[item].relative_to(dataset.root)}) is being read for "
            in said
        ]
        assert len(named) == 1, said
        assert "see that its storage answers" in said
        assert sick.waiting == ALONE
    sick.let_go()
    assert [batch["indices"] for batch in rank.rest_of_epoch()] == order
    assert rank.do("stats")["reconnects"] == 0


def test_one_file_that_hangs_is_named_while_all_batches_behind_it_are_finished(
    sick: HungMount,
    dataset: Any,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
) -> None:
    daemon = serve("sick", io_threads=16, shuffle="none")
    rank = start_rank(daemon, "sick", job="run", timeout=TIMEOUT_S)
    sick.hang(only=dataset.files[BATCH].name)
    assert rank.next()["indices"] == list(range(BATCH))
    refused = rank.do("next")
    assert refused["error"] == "TimeoutError", refused
    name = dataset.files[BATCH].relative_to(dataset.root)
    assert f"item {BATCH} ({name}) is being read for " in refused["message"]
    (session,) = daemon.ctl_json("get", "sessions")
    assert session["ready"] == 0, "it could be handed nothing now"
    sick.let_go()
    assert indices(rank.rest_of_epoch()) == list(range(BATCH, ITEMS))


def test_a_shard_that_hangs_is_told_so_while_another_one_goes_on(
    sick: HungMount,
    dataset: Any,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
) -> None:
    half = ITEMS // 2
    # The batches that are made ahead want the file, too, and leave the other shard some threads.
    daemon = serve("sick", io_threads=16, shuffle="none", batch={"size": half, "last": "keep"})
    other, stuck = (
        start_rank(daemon, "sick", job="run", rank=rank, world_size=2, timeout=TIMEOUT_S)
        for rank in range(2)
    )
    sick.hang(only=dataset.files[-1].name)
    stuck.ask("next")
    epochs = 0
    while not stuck.answered():
        assert indices(other.rest_of_epoch()) == list(range(half))
        epochs += 1
    assert epochs > 1
    refused = stuck.answer()
    assert refused["error"] == "TimeoutError", refused
    name = dataset.files[-1].relative_to(dataset.root)
    assert f"item {ITEMS - 1} ({name}) is being read for " in refused["message"]
    sick.let_go()
    assert indices(stuck.rest_of_epoch()) == list(range(half, ITEMS))


def test_a_batch_that_takes_longer_than_the_timeout_is_waited_for_while_it_comes_on(
    sick: HungMount,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    daemon = serve("sick", batch={"size": 12, "last": "keep"})
    rank = start_rank(daemon, "sick", timeout=TIMEOUT_S)
    sick.hang()
    rank.ask("next")
    # Some hang at a time, each once: more than twice the timeout in all.
    for _ in range(8):
        wait_until(lambda: sick.waiting >= IO_THREADS // 2, "the next reads")
        assert not rank.answered(TIMEOUT_S / 4), rank.answer()
        sick.let_one_go()
    assert not rank.answered()
    sick.let_go()
    assert sorted(rank.answer()["indices"] + indices(rank.rest_of_epoch())) == list(range(ITEMS))


@pytest.mark.parametrize("io_threads", [IO_THREADS, 16])
def test_the_daemon_ends_at_once_with_reads_that_never_come(
    mount: Callable[..., HungMount],
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    io_threads: int,
) -> None:
    sick = mount("sick", interruptible=True)
    daemon = serve("sick", io_threads=io_threads)
    order = [batch["indices"] for batch in start_rank(daemon, "sick").rest_of_epoch()]
    rank = start_rank(daemon, "sick", job="run")
    sick.hang()
    rank.ask("next")
    wait_until(lambda: sick.waiting == io_threads - 1, "reads that hang")
    assert daemon.stop() == 0, daemon.log()
    assert sick.waiting == 0, "it is gone, and with it all that it waited for"
    assert "leaves behind reads" in daemon.log()
    # Nothing is lost with them.
    sick.let_go()
    daemon.start()
    batches = [rank.answer(), *rank.rest_of_epoch()]
    assert [batch["indices"] for batch in batches] == order


@pytest.mark.parametrize(
    ("call", "number"),
    [(READ, signal.SIGKILL), (OPENDIR, signal.SIGKILL), (OPENDIR, signal.SIGTERM)],
    ids=["killed in a read", "killed in a listing", "stopped in a listing"],
)
def test_a_daemon_that_dies_while_storage_hangs_is_followed_by_another_and_ranks_go_on(
    mount: Callable[..., HungMount],
    sick: HungMount,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    write_large_pipeline: Callable[..., pathlib.Path],
    dataset: Any,
    spawn: Callable[..., Any],
    tmp_path: pathlib.Path,
    call: int,
    number: int,
) -> None:
    mount("well")
    daemon = serve("well", "sick", io_threads=16)
    rank, stuck = start_rank(daemon, "well", job="run"), start_rank(daemon, "sick", job="stuck")
    batches = [rank.next()]
    stuck.next()
    sick.hang(call=call)
    if call == READ:
        stuck.ask("next")
    else:
        listing = write_large_pipeline(
            dataset,
            name="other",
            source={"files": {"root": str(tmp_path / "sick"), "pattern": "*/*.jpg"}},
        )
        apply = (str(build_dir() / "bin/spdlctl"), "--address", daemon.address, "apply", "-f")
        spawn("import subprocess, sys; subprocess.run(sys.argv[1:])", *apply, str(listing))
    wait_until(lambda: sick.waiting > 0, "a call that hangs")
    daemon.signal(number)
    wait_until(lambda: state_of(daemon.pid) == "Z", "the daemon to die")
    dead = daemon.desert()
    assert sick.waiting > 0, "a thread of it hangs still"
    daemon.start()
    batches += rank.rest_of_epoch()
    assert sorted(indices(batches)) == list(range(ITEMS))
    assert dead.poll() is None
    sick.let_go()
    dead.wait()


def state_of(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_daemon_ends_cleanly_when_reads_come_that_it_has_given_up(
    sick: HungMount,
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    daemon = serve("sick", io_threads=16)
    rank = start_rank(daemon, "sick", job="run")
    sick.hang()
    rank.ask("next")
    wait_until(lambda: sick.waiting >= 8, "reads that hang")
    daemon.signal(signal.SIGTERM)

    def workers_are_gone() -> bool:
        return not any(name.startswith("spdld-cpu") for name in threads_of(daemon.pid))

    # It has stopped but for what the kernel does not let it leave.
    wait_until(workers_are_gone, "the daemon to stop its workers")
    assert not any(path.exists() for path in daemon.runtime_dir.glob("*.sock"))
    sick.let_go()
    assert daemon.wait() == 0, daemon.log()


def test_a_pipeline_whose_reads_hang_is_dropped_without_a_wait(
    mount: Callable[..., HungMount],
    make_dataset: Callable[..., Any],
    write_large_pipeline: Callable[..., pathlib.Path],
    serve: Callable[..., Any],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    tmp_path: pathlib.Path,
) -> None:
    """What it leaves behind, under whatever lock it dies, holds up nobody else."""
    many = make_dataset(count=MANY_ITEMS)
    sick = mount("sick", many.root)
    mount("well")
    daemon = serve("well", io_threads=16)
    other = start_rank(daemon, "well", job="other")
    assert sorted(indices(other.rest_of_epoch())) == list(range(ITEMS))
    # One of the items that are looked at for what a cache would cost; the rank does not get there.
    sick.hang(only=many.files[63 * MANY_ITEMS // 64].name)
    pipeline = write_large_pipeline(
        many,
        name="sick",
        source={
            "files": {
                "root": str(tmp_path / "sick"),
                "pattern": "**/*.jpg",
                "label": "parent_dir",
            }
        },
        shuffle="none",
        batch={"size": BATCH},
        cache={"form": "encoded", "size": "64MiB", "where": "ram"},
    )
    daemon.ctl("apply", "-f", pipeline)
    assert sick.waiting == 1
    rank = start_rank(daemon, "sick", job="run")
    assert rank.next()["indices"] == list(range(BATCH))
    rank.kill()

    def its_job_has_ended() -> bool:
        return all(job["pipeline"] != "sick" for job in daemon.ctl_json("get", "jobs"))

    wait_until(its_job_has_ended, "the job to end")
    daemon.ctl("delete", "pipeline", "sick")
    for job in range(3):  # they come, read and go
        assert sorted(indices(other.rest_of_epoch())) == list(range(ITEMS))
        late = start_rank(daemon, "well", job=f"late-{job}")
        assert sorted(indices(late.rest_of_epoch())) == list(range(ITEMS))
        late.close()
    assert sick.waiting == 1, "it hangs still"

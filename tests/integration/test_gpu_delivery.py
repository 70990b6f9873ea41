# SPDX-License-Identifier: Apache-2.0
"""Batches that the daemon brings to a GPU: who shares them, what is left of them, and what is said
where it cannot be done. The GPU is the fake one of tests/fake_cuda."""

from __future__ import annotations

import os
import pathlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import on_gpu
import pytest
from integration.ranks import Rank, in_lockstep, indices

pytestmark = pytest.mark.parametrize("device", ["cuda"], indirect=True)
ITEMS, BATCH, PREFETCH = 96, 2, 4
STEPS = ITEMS // BATCH
NOBODY_READS = {"processes": 1}  # the daemon, which has nothing there
MIB = 1 << 20

Write = Callable[..., pathlib.Path]


@pytest.fixture
def data(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=ITEMS, texture=True)


@pytest.fixture
def write(write_version: Write, data: Any) -> Write:
    def write(name: str = "images", **delivery: Any) -> pathlib.Path:
        return write_version(
            data, name, batch={"size": BATCH}, delivery={"prefetch": PREFETCH, **delivery}
        )

    return write


@pytest.fixture
def pipeline(write: Write) -> pathlib.Path:
    return write()


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "gpu-ledger"


@pytest.fixture
def start_replica(start_rank: Callable[..., Rank]) -> Callable[..., Rank]:
    def start(daemon: Any, replica: int, **options: Any) -> Rank:
        place = {"shard": 0, "num_shards": 1, "replica": replica, "replicas": 2}
        return start_rank(daemon, job="run", **place, **options)

    return start


def digests(rank: Rank, count: int) -> list[dict[str, Any]]:
    answers = [rank.do("digest") for _ in range(count)]
    assert all("digests" in answer for answer in answers), answers
    return answers


def contents(answers: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["epoch"], one["step"], one["indices"], one["digests"]) for one in answers]


def in_main_memory(start_rank: Callable[..., Rank], daemon: Any, write: Write) -> list[Any]:
    """An epoch as a rank without a GPU reads it, of the same batches."""
    daemon.ctl("apply", "-f", write("reference", device="cpu"))
    rank = start_rank(daemon, "reference", job="reference", device=None)
    answers = digests(rank, STEPS)
    assert not any(answer["on_gpu"] for answer in answers)
    rank.do("close")
    return contents(answers)


def shared_bytes(ledger: pathlib.Path) -> int:
    return on_gpu.counts(ledger).shared_bytes


def rows_made(daemon: Any) -> int:
    stages = daemon.ctl_json("get", "stages")
    return sum(stage["tasks"] for stage in stages if "decode" in stage["stage"])


def test_digests_on_the_gpu_are_those_in_main_memory(
    daemon: Any, write: Write, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, job="gpu")
    answers = digests(rank, STEPS)
    assert all(answer["on_gpu"] for answer in answers)
    (session,) = daemon.ctl_json("get", "sessions")
    assert session["gpu"].startswith("GPU-")
    assert f" {session['gpu'][:12]} " in daemon.ctl("get", "sessions").stdout
    assert contents(answers) == in_main_memory(start_rank, daemon, write)


def test_a_loader_without_device_is_refused(daemon: Any, start_rank: Callable[..., Rank]) -> None:
    refused = start_rank(daemon, device=None).do("next")["message"]
    assert (
        "pipeline 'images' delivers to GPUs, and this loader's batches cannot lie there" in refused
    )
    assert 'it names none; open it with device="cuda"' in refused
    assert "'on_unavailable: host' takes main memory" in refused


def test_a_loader_without_device_may_be_left_in_main_memory(
    daemon: Any, write: Write, start_rank: Callable[..., Rank]
) -> None:
    daemon.ctl("apply", "-f", write(on_unavailable="host"))
    rank = start_rank(daemon, device=None)
    assert not rank.next()["on_gpu"]
    (warning,) = rank.do("warnings")["warnings"]
    assert "pipeline 'images' delivers to GPUs, and this loader's batches lie in main" in warning
    assert 'it names none; open it with device="cuda"' in warning
    (session,) = daemon.ctl_json("get", "sessions")
    assert session["gpu"] == ""
    assert " host " in daemon.ctl("get", "sessions").stdout


def test_a_preview_needs_no_gpu(daemon: Any, pipeline: pathlib.Path, ledger: pathlib.Path) -> None:
    assert daemon.ctl("preview", "-f", pipeline)
    assert on_gpu.counts(ledger).contexts == 0


def test_a_swap_that_finds_the_gpu_full_goes_on_in_main_memory(
    make_daemon: Callable[..., Any], write: Write, start_rank: Callable[..., Rank]
) -> None:
    daemon = make_daemon(
        pipelines=[write(device="cpu")], environment={"FAKE_CUDA_MEMORY": str(MIB)}
    )
    rank = start_rank(daemon, job="run")
    answers = digests(rank, 4)
    refused = daemon.ctl("apply", "-f", write(), "--job", "run", "--at", "step:0/20", check=False)
    assert (
        "cannot be had: 0 B of its 1.0 MiB are free; leave" in refused.stderr
    )  # the loader has it
    daemon.ctl("apply", "-f", write(on_unavailable="host"), "--job", "run", "--at", "step:0/20")
    answers += digests(rank, STEPS - 4)
    assert contents(answers) == in_main_memory(start_rank, daemon, write)
    assert "this loader's batches lie in main memory: " in rank.do("warnings")["warnings"][-1]


def test_replicas_on_one_gpu_share_its_memory(
    daemon: Any, ledger: pathlib.Path, start_replica: Callable[..., Rank]
) -> None:
    first = start_replica(daemon, 0)
    first.take(1)
    alone = shared_bytes(ledger)
    second = start_replica(daemon, 1)
    second.take(1)
    assert alone > 0
    batches = in_lockstep([first, second], STEPS - 1)
    assert [batch["sum"] for batch in batches[0]] == [batch["sum"] for batch in batches[1]]
    assert all(batch["on_gpu"] for of_one in batches for batch in of_one)
    assert shared_bytes(ledger) == alone


def test_a_replica_joins_while_others_have_taken_what_was_kept_for_it(
    daemon: Any, write: Write, start_rank: Callable[..., Rank], start_replica: Callable[..., Rank]
) -> None:
    expected = in_main_memory(start_rank, daemon, write)
    first = start_replica(daemon, 0)
    begun = digests(first, PREFETCH)
    second = start_replica(daemon, 1)
    assert contents(digests(second, PREFETCH)) == expected[:PREFETCH]
    assert contents(begun) == expected[:PREFETCH]
    for step in range(PREFETCH, STEPS):
        assert contents(digests(first, 1)) == expected[step : step + 1]
        assert contents(digests(second, 1)) == expected[step : step + 1]


def test_replicas_on_two_gpus_are_copied_to_from_one_decode(
    make_daemon: Callable[..., Any],
    pipeline: pathlib.Path,
    ledger: pathlib.Path,
    start_rank: Callable[..., Rank],
    start_replica: Callable[..., Rank],
) -> None:
    two = {"FAKE_CUDA_DEVICES": "2"}
    # Each of the three counts the GPUs in another way.
    daemon = make_daemon(pipelines=[pipeline], environment={**two, "CUDA_VISIBLE_DEVICES": "1,0"})
    replicas = [
        start_replica(daemon, number, environment={**two, "CUDA_VISIBLE_DEVICES": str(number)})
        for number in range(2)
    ]
    of_one, of_other = in_lockstep(replicas, STEPS)
    assert [batch["sum"] for batch in of_one] == [batch["sum"] for batch in of_other]
    assert indices(of_one) == indices(of_other)
    assert ITEMS <= rows_made(daemon) <= ITEMS + 3 * (PREFETCH + 2) * BATCH
    assert on_gpu.counts(ledger).contexts == 4, "of each replica, and of the daemon on each GPU"


REFUSALS = {
    "no driver": (
        {"LD_LIBRARY_PATH": ""},
        {},
        "the daemon cannot use GPUs: there is no NVIDIA driver here",
    ),
    "exclusive process": (
        {"FAKE_CUDA_COMPUTE_MODE": "exclusive"},
        {},
        "it is in exclusive-process mode, and a context of the daemon would lock the trainer out",
    ),
    "another GPU": (
        {"FAKE_CUDA_UUIDS": "11111111-2222-3333-4444-555555555555"},
        {},
        "(it sees GPU-11111111-2222-3333-4444-555555555555): give its container or unit that device",
    ),
    "full GPU": (
        {"FAKE_CUDA_MEMORY": str(MIB)},
        {},
        "cannot be had: 1.0 MiB of its 1.0 MiB are free; leave",
    ),
    "small budget": (
        {},
        {"cuda": {"budget": "1MiB"}},
        "of the 1.0 MiB that cuda.budget allows the daemon there are taken; raise it, or lower",
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_what_keeps_the_daemon_from_a_gpu_refuses_the_loader(
    make_daemon: Callable[..., Any],
    pipeline: pathlib.Path,
    start_rank: Callable[..., Rank],
    ledger: pathlib.Path,
    why: str,
) -> None:
    environment, settings, told = REFUSALS[why]
    daemon = make_daemon(pipelines=[pipeline], environment=environment, settings=settings)
    rank = start_rank(daemon)
    refused = rank.do("next")
    assert told in refused["message"]
    rank.close()
    assert on_gpu.counts(ledger).shared_bytes == 0


@pytest.mark.parametrize("why", REFUSALS)
def test_what_keeps_the_daemon_from_a_gpu_may_leave_batches_in_main_memory(
    make_daemon: Callable[..., Any], write: Write, start_rank: Callable[..., Rank], why: str
) -> None:
    environment, settings, told = REFUSALS[why]
    daemon = make_daemon(
        pipelines=[write(on_unavailable="host")], environment=environment, settings=settings
    )
    rank = start_rank(daemon, job="gpu")
    # The loader has its GPU all the same, and copies them there by itself.
    answers = digests(rank, STEPS)
    assert all(answer["on_gpu"] for answer in answers)
    (warning,) = rank.do("warnings")["warnings"]
    assert "this loader's batches lie in main memory: " in warning and told in warning
    assert warning.endswith("; this loader copies them to its GPU itself")
    assert contents(answers) == in_main_memory(start_rank, daemon, write)


def test_a_job_is_swapped_to_the_gpu_and_back_while_it_is_read(
    daemon: Any, write: Write, start_rank: Callable[..., Rank], ledger: pathlib.Path
) -> None:
    expected = in_main_memory(start_rank, daemon, write)
    daemon.ctl("apply", "-f", write("hosted", device="cpu"))
    rank = start_rank(daemon, "hosted", job="run")
    answers = digests(rank, 4)
    assert shared_bytes(ledger) == 0
    daemon.ctl("apply", "-f", write("hosted"), "--job", "run", "--at", "step:0/20")
    answers += digests(rank, 20)
    assert shared_bytes(ledger) > 0
    back = write("hosted", device="cpu")
    daemon.ctl("apply", "-f", back, "--job", "run", "--at", "step:0/40")
    answers += digests(rank, STEPS - 24)
    assert contents(answers) == expected
    assert {answer["on_gpu"] for answer in answers} == {True}


def test_a_seek_is_followed_on_the_gpu(
    daemon: Any, write: Write, start_rank: Callable[..., Rank], wait_until: Callable[..., Any]
) -> None:
    expected = in_main_memory(start_rank, daemon, write)
    rank = start_rank(daemon, job="run")
    answers = digests(rank, 6)
    daemon.ctl("job", "seek", "run", "--epoch", "0", "--step", "30")
    while (answer := digests(rank, 1)[0])["step"] < 30:
        answers.append(answer)
    assert contents(answers) == expected[: len(answers)]
    rest = [answer, *digests(rank, STEPS - 31)]
    assert contents(rest) == expected[30:]


def test_what_a_rank_holds_outlives_the_daemon_and_reading_goes_on(
    daemon: Any, write: Write, start_rank: Callable[..., Rank], ledger: pathlib.Path
) -> None:
    expected = in_main_memory(start_rank, daemon, write)
    rank = start_rank(daemon, job="run")
    begun = rank.take(5)
    held = rank.next(hold=True)
    one_arena = shared_bytes(ledger)
    daemon.kill()
    assert rank.do("sums") == {"sums": [held["sum"]]}
    daemon.start()
    rest = rank.rest_of_epoch()
    assert rank.do("sums") == {"sums": [held["sum"]]}, "the next daemon writes elsewhere"
    assert indices([*begun, held, *rest]) == [item for one in expected for item in one[2]]
    assert shared_bytes(ledger) == 2 * one_arena, "the first daemon's is held by its reader alone"
    rank.do("drop")
    rank.take(2)
    assert shared_bytes(ledger) == one_arena


def descriptors(daemon: Any) -> Counter[str]:
    links = pathlib.Path(f"/proc/{daemon.pid}/fd").iterdir()
    # Inode numbers aside: a socket is as good as another. Arenas of main memory are kept for the
    # next consumer, and how many depends on who comes when.
    names = Counter(os.readlink(link).partition(":[")[0] for link in links)
    return Counter({name: n for name, n in names.items() if "spdld-arena" not in name})


@pytest.mark.parametrize("ends", ["kill", "close"])
def test_nothing_is_left_of_a_rank_that_ends_while_it_holds_batches(
    daemon: Any,
    start_rank: Callable[..., Rank],
    ledger: pathlib.Path,
    wait_until: Callable[..., Any],
    ends: str,
) -> None:
    def read_and_end() -> None:
        rank = start_rank(daemon, job="run")
        rank.next(hold=True)
        rank.next(hold=True)
        found = on_gpu.counts(ledger)
        assert found.contexts == 2 and found.registrations > 0 and found.shared_bytes > 0
        getattr(rank, ends)()
        wait_until(lambda: on_gpu.counts(ledger).held() == NOBODY_READS, "an empty GPU")

    read_and_end()
    first = descriptors(daemon)
    for _ in range(3):
        read_and_end()
    # The GPU may be empty before the daemon has closed the rank's socket.
    wait_until(lambda: not descriptors(daemon) - first, "no more descriptors than after the first")
    assert not any("fake_cuda" in name for name in descriptors(daemon)), "memory of the GPU"


def test_the_daemon_leaves_the_gpu_with_its_last_consumer(
    daemon: Any,
    start_rank: Callable[..., Rank],
    ledger: pathlib.Path,
    wait_until: Callable[..., Any],
) -> None:
    assert on_gpu.counts(ledger).contexts == 0, "nobody has read yet"
    ranks = [start_rank(daemon, job=job) for job in ("one", "other")]
    for rank in ranks:
        rank.take(2)
    assert on_gpu.counts(ledger).contexts == 3, "of two ranks, and one of the daemon"
    ranks[0].do("close")
    ranks[0].close()
    ranks[1].take(2)
    assert on_gpu.counts(ledger).contexts == 2
    ranks[1].do("close")
    ranks[1].close()
    wait_until(lambda: on_gpu.counts(ledger).held() == NOBODY_READS, "an empty GPU")

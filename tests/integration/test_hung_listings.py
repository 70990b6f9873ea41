# SPDX-License-Identifier: Apache-2.0
"""Storage that does not answer while a dataset is listed, opened or tried: whom that stops.

How long others take beside it is printed: `pytest -s`.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from daemon import build_dir
from integration.hung_mount import GETATTR, LOOKUP, OPENDIR, READ, HungMount
from integration.ranks import Rank, indices
from integration.threads import threads_of

ITEMS, BATCH = 24, 4
# More than limits.listings lets one user list at once.
MANY = 6
CALLS = pytest.mark.parametrize(
    "call", [LOOKUP, GETATTR, OPENDIR, READ], ids=["lookup", "getattr", "opendir", "read"]
)


@pytest.fixture
def dataset(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=ITEMS)


@pytest.fixture
def sick(mount: Callable[..., HungMount], dataset: Any) -> HungMount:
    return mount("sick", dataset.root, valid_s=0)


@pytest.fixture
def write(
    write_large_pipeline: Callable[..., pathlib.Path], dataset: Any, tmp_path: pathlib.Path
) -> Callable[..., pathlib.Path]:
    """write(name, root): a pipeline of that name over the dataset, or over the mount of that name."""

    def written(name: str, root: str = "", **sections: Any) -> pathlib.Path:
        files = {
            "root": str(tmp_path / root if root else dataset.root),
            "pattern": "**/*.jpg",
            "label": "parent_dir",
        }
        return write_large_pipeline(
            dataset,
            name=name,
            **{"source": {"files": files}, "batch": {"size": BATCH, "last": "keep"}, **sections},
        )

    return written


@pytest.fixture
def begin_apply(spawn: Callable[..., Any]) -> Callable[..., subprocess.Popen[str]]:
    """begin_apply(daemon, file, …): spdlctl apply, beside the test."""
    # A shell has what it starts in the background ignore SIGINT.
    run = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    run += " os.execv(sys.argv[1], sys.argv[1:])"

    def begin(daemon: Any, file: pathlib.Path, *options: str) -> subprocess.Popen[str]:
        program = str(build_dir() / "bin/spdlctl")
        return spawn(run, program, "--address", daemon.address, "apply", "-f", str(file), *options)

    return begin


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.2f} s")


class Others:
    """Jobs and pipelines of the same user on storage that answers."""

    def __init__(
        self, daemon: Any, start_rank: Callable[..., Rank], write: Callable[..., pathlib.Path]
    ) -> None:
        self._daemon, self._start_rank, self._write = daemon, start_rank, write
        daemon.ctl("apply", "-f", write("changes", seed="${seed}", vars={"seed": 7}))
        self._rank = start_rank(daemon, "changes", job="changes")
        self._rank.next()

    def go_on(self) -> None:
        with timed("apply"):
            self._daemon.ctl("apply", "-f", self._write("applied"))
        for what, pipeline in (
            ("attach", "applied"),
            ("attach with a pipeline", str(self._write("brought"))),
        ):
            with timed(what):
                rank = self._start_rank(self._daemon, pipeline)
                rank.next()
            assert len(indices(rank.rest_of_epoch())) == ITEMS - BATCH
        with timed("change by a rank"):
            changed = self._rank.do("apply", vars={"seed": 5}, at="next-epoch")
        assert "error" not in changed, changed
        with timed("change by an operator"):
            swapped = self._write("changes", seed="${seed}", vars={"seed": 7}, shuffle="none")
            self._daemon.ctl("apply", "-f", swapped, "--job", "changes", "--at", "next-epoch")


def listings(daemon: Any) -> int:
    return threads_of(daemon.pid).count("spdld-list")


def version_of(daemon: Any, pipeline: str) -> int:
    (found,) = (each for each in daemon.ctl_json("get", "pipelines") if each["name"] == pipeline)
    return found["version"]


@pytest.mark.parametrize("call", [LOOKUP, GETATTR, OPENDIR], ids=["lookup", "getattr", "opendir"])
def test_listings_that_hang_hold_back_no_other_of_their_user(
    make_daemon: Callable[..., Any],
    sick: HungMount,
    write: Callable[..., pathlib.Path],
    begin_apply: Callable[..., subprocess.Popen[str]],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    call: int,
) -> None:
    daemon = make_daemon(pipelines=[write("well")])
    sick.hang(call=call)
    applies = [begin_apply(daemon, write(f"sick-{i}", "sick")) for i in range(MANY)]
    wait_until(lambda: sick.waiting > 0 and listings(daemon) == MANY, "listings that hang")
    daemon.ctl("apply", "-f", write("other"))
    for pipeline in ("well", "other"):
        rank = start_rank(daemon, pipeline)
        assert sorted(indices(rank.rest_of_epoch())) == list(range(ITEMS))
    assert sick.waiting > 0
    assert all(apply.poll() is None for apply in applies)
    sick.let_go()
    for apply in applies:
        assert apply.wait() == 0, apply.communicate()


def test_an_apply_whose_listing_hangs_ends_when_its_caller_wants(
    make_daemon: Callable[..., Any],
    sick: HungMount,
    write: Callable[..., pathlib.Path],
    begin_apply: Callable[..., subprocess.Popen[str]],
    wait_until: Callable[..., Any],
) -> None:
    daemon = make_daemon()
    sick.hang(call=OPENDIR)
    apply = begin_apply(daemon, write("sick", "sick"))
    wait_until(lambda: sick.waiting > 0, "a listing that hangs")
    apply.send_signal(signal.SIGINT)
    assert apply.wait() != 0
    # One that has just been answered may not have ended yet.
    wait_until(lambda: listings(daemon) == 1, "the one thread that the kernel has still")
    sick.let_go()
    wait_until(lambda: listings(daemon) == 0, "the listing to be given up")
    assert daemon.ctl_json("get", "pipelines") == []


@CALLS
def test_attaches_that_hang_hold_back_no_other_of_their_user(
    make_daemon: Callable[..., Any],
    sick: HungMount,
    write: Callable[..., pathlib.Path],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    call: int,
) -> None:
    """Their loaders replace pipelines: these are listed, and then a first batch is made of them."""
    daemon = make_daemon(pipelines=[write(f"sick-{i}") for i in range(MANY)])
    others = Others(daemon, start_rank, write)
    sick.hang(call=call)
    files = [write(f"sick-{i}", "sick", shuffle="none") for i in range(MANY)]
    stuck = [start_rank(daemon, str(file), replace=True) for file in files]
    for rank in stuck:
        rank.ask("next")
    wait_until(lambda: sick.waiting > 0, "attaches that hang")
    others.go_on()
    assert not any(rank.answered() for rank in stuck)
    sick.let_go()
    for rank in stuck:
        assert rank.answer()["indices"] == list(range(BATCH))


def test_an_attach_that_ends_gives_up_its_listing(
    make_daemon: Callable[..., Any],
    sick: HungMount,
    write: Callable[..., pathlib.Path],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    daemon = make_daemon()
    sick.hang(call=OPENDIR)
    rank = start_rank(daemon, str(write("sick", "sick")))
    rank.ask("next")
    wait_until(lambda: sick.waiting > 0, "a listing that hangs")
    rank.kill()
    wait_until(lambda: daemon.ctl_json("get", "sessions") == [], "the session to end")
    sick.let_go()
    wait_until(lambda: listings(daemon) == 0, "the listing to be given up")
    assert daemon.ctl_json("get", "pipelines") == []


@CALLS
def test_changes_that_hang_hold_back_their_own_jobs_alone(
    make_daemon: Callable[..., Any],
    sick: HungMount,
    dataset: Any,
    write: Callable[..., pathlib.Path],
    begin_apply: Callable[..., subprocess.Popen[str]],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    tmp_path: pathlib.Path,
    call: int,
) -> None:
    """Ranks and an operator change jobs to data that are listed, and tried by a first batch."""
    files = {"root": "${root}", "pattern": "**/*.jpg", "label": "parent_dir"}
    moved = {"source": {"files": files}, "vars": {"root": str(dataset.root)}}
    daemon = make_daemon(pipelines=[write("moves", **moved), write("swaps")])
    others = Others(daemon, start_rank, write)
    ranks = [start_rank(daemon, "moves", job=f"moves-{i}") for i in range(MANY)]
    swapped = start_rank(daemon, "swaps", job="swaps")
    for rank in (*ranks, swapped):
        rank.next()
    sick.hang(call=call)
    for rank in ranks:
        rank.ask("apply", vars={"root": str(tmp_path / "sick")}, at="next-epoch")
    swap = begin_apply(daemon, write("swaps", "sick"), "--job", "swaps", "--at", "next-epoch")
    wait_until(lambda: sick.waiting > 0, "changes that hang")
    others.go_on()
    assert not any(rank.answered() for rank in ranks)
    assert swap.poll() is None
    sick.let_go()
    for rank in ranks:
        changed = rank.answer()
        assert "error" not in changed, changed
    assert swap.wait() == 0, swap.communicate()


@pytest.mark.parametrize("call", [LOOKUP, GETATTR, READ], ids=["lookup", "getattr", "read"])
def test_a_daemon_serves_before_it_has_opened_what_was_applied(
    make_daemon: Callable[..., Any],
    sick: HungMount,
    write: Callable[..., pathlib.Path],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    call: int,
) -> None:
    daemon = make_daemon()
    for name, root in (("well", ""), ("sick", "sick")):
        daemon.ctl("apply", "-f", write(name, root))
    daemon.ctl("job", "create", "late", "--pipeline", "sick")
    order = [batch["indices"] for batch in start_rank(daemon, "sick").rest_of_epoch()]
    rank = start_rank(daemon, "well", job="run")
    batches = [rank.next()]
    daemon.kill()
    sick.hang(call=call)
    with timed("restart"):
        daemon.start()
    batches += rank.rest_of_epoch()
    assert sorted(indices(batches)) == list(range(ITEMS))
    shown = {each["name"]: each["items"] for each in daemon.ctl_json("get", "pipelines")}
    assert shown == {"well": ITEMS, "sick": ITEMS}
    assert {job["job"] for job in daemon.ctl_json("get", "jobs")} == {"run", "late"}
    assert sick.waiting == 0, "nothing was asked of it"
    stuck = start_rank(daemon, "sick", job="late")
    stuck.ask("next")
    wait_until(lambda: sick.waiting > 0, "the pipeline to be opened, as it is named")
    Others(daemon, start_rank, write).go_on()
    assert not stuck.answered()
    sick.let_go()
    batches = [stuck.answer(), *stuck.rest_of_epoch()]
    assert [batch["indices"] for batch in batches] == order


@pytest.mark.parametrize("call", [LOOKUP, GETATTR, OPENDIR], ids=["lookup", "getattr", "opendir"])
def test_a_file_of_the_configuration_whose_data_hang_holds_back_no_other(
    make_daemon: Callable[..., Any],
    sick: HungMount,
    write: Callable[..., pathlib.Path],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
    call: int,
) -> None:
    daemon = make_daemon(pipelines=[write("sick"), write("well")])
    others = Others(daemon, start_rank, write)
    sick.hang(call=call)
    write("sick", "sick", seed=5)
    write("well", seed=5)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: version_of(daemon, "well") == 2, "the other file to be applied")
    assert sick.waiting > 0
    assert version_of(daemon, "sick") == 1
    others.go_on()
    sick.let_go()
    wait_until(lambda: version_of(daemon, "sick") == 2, "the file to be applied")


def test_a_pipeline_whose_file_is_still_being_applied_is_waited_for(
    make_daemon: Callable[..., Any],
    sick: HungMount,
    write: Callable[..., pathlib.Path],
    start_rank: Callable[..., Rank],
    wait_until: Callable[..., Any],
) -> None:
    sick.hang(call=OPENDIR)
    daemon = make_daemon(pipelines=[write("sick", "sick"), write("well")])
    reader, lost = start_rank(daemon, "sick"), start_rank(daemon, "nowhere")
    for rank in (reader, lost):
        rank.ask("next")
    others = itertools.count(1)

    def both_have_asked() -> bool:
        """Sessions are numbered as they ask."""
        count = next(others)
        start_rank(daemon, "well").next()
        numbers = re.findall(r"session (\d+): pid", daemon.log())
        return int(numbers[-1]) == count + 2

    wait_until(both_have_asked, "both ranks to ask for their pipelines")
    assert not reader.answered() and not lost.answered()
    sick.let_go()
    batches = [reader.answer(), *reader.rest_of_epoch()]
    assert sorted(indices(batches)) == list(range(ITEMS))
    assert "there is no pipeline 'nowhere'" in lost.answer()["message"]

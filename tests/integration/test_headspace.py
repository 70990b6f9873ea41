# SPDX-License-Identifier: Apache-2.0
"""`spdlctl headspace` times training with data ready, and ranks read what they would have read."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from daemon import build_dir

RANKS, ITEMS, BATCH, STEPS = 2, 96, 4, 40
STEPS_OF_EPOCH = ITEMS // BATCH // RANKS

Rows = list[list[str]]


@pytest.fixture
def pipeline(make_dataset: Callable[..., Any], write_pipeline: Callable[..., Any]) -> pathlib.Path:
    return write_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH})


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], pipeline: pathlib.Path) -> Any:
    return make_daemon(pipelines=[pipeline], settings={"executor": {"cpu_threads": 2}})


class Reader:
    """A rank that reads as fast as it can, until it is stopped, and writes down each row."""

    def __init__(self, daemon: Any, job: str, rank: int, file: pathlib.Path, epochs: int) -> None:
        self._file = file
        with file.open("w") as out:
            self._process = subprocess.Popen(
                [
                    *(build_dir() / "bin/spdlctl", "--address", daemon.address),
                    *("consume", "images", "--job", job, "--digest", "--per-row"),
                    *("--rank", str(rank), "--world-size", str(RANKS), "--epochs", str(epochs)),
                ],
                stdout=out,
            )

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        assert self._process.wait(60) == 0

    def rows(self) -> Rows:
        """Those of whole lines, by epoch and step."""
        lines = self._file.read_text().splitlines(keepends=True)
        return [line.split() for line in lines if line.endswith("\n")]


@contextlib.contextmanager
def reading(
    daemon: Any, job: str, directory: pathlib.Path, epochs: int = 1_000_000
) -> Iterator[list[Reader]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Reader(daemon, job, rank, directory / f"{job}-{rank}", epochs))
            for rank in range(RANKS)
        ]


def check_rows(daemon: Any, directory: pathlib.Path, read: list[Rows]) -> None:
    """Each rank has read what an undisturbed one reads, as far as it came."""
    epochs = 1 + max(int(rows[-1][0]) for rows in read)
    with reading(daemon, "undisturbed", directory, epochs) as readers:
        for reader in readers:
            reader.wait()
        for rank, (reader, rows) in enumerate(zip(readers, read, strict=True)):
            assert rows == reader.rows()[: len(rows)], f"rank {rank}"


def test_rows_of_a_measured_job_come_once_and_in_order(
    daemon: Any, tmp_path: pathlib.Path, wait_until: Callable[..., Any]
) -> None:
    with reading(daemon, "run", tmp_path) as readers:
        wait_until(lambda: all(reader.rows() for reader in readers), "rows")
        found = daemon.ctl_json("headspace", "run", "--steps", str(STEPS))
        seen = [len(reader.rows()) for reader in readers]
        wait_until(
            lambda: all(len(r.rows()) > s for r, s in zip(readers, seen, strict=True)),
            "further rows",
        )
    assert found["ended_by"] == "" and found["warning"] == ""
    assert found["ranks"] == RANKS and found["prefetch"] == STEPS + 3
    assert found["steps_ready"] >= STEPS and found["steps_per_epoch"] == STEPS_OF_EPOCH
    assert 0 <= found["gain"] < 1 and found["now_s"] > 0 and found["ready_s"] > 0
    check_rows(daemon, tmp_path, [reader.rows() for reader in readers])


@pytest.mark.parametrize("ends", ["spdlctl", "daemon killed", "daemon stopped"])
def test_all_is_as_before_when_one_side_ends_in_a_round(
    daemon: Any, tmp_path: pathlib.Path, wait_until: Callable[..., Any], ends: str
) -> None:
    def credits() -> list[int]:
        return [session["credits"] for session in daemon.ctl_json("get", "sessions")]

    with reading(daemon, "run", tmp_path) as readers:
        wait_until(lambda: all(reader.rows() for reader in readers), "rows")
        measuring = subprocess.Popen(
            [
                *(build_dir() / "bin/spdlctl", "--address", daemon.address),
                *("headspace", "run", "--steps", "1000"),
            ],
            stderr=subprocess.PIPE,
        )
        wait_until(lambda: credits() == [64] * RANKS, "a round")
        if ends == "spdlctl":
            measuring.kill()
        elif ends == "daemon killed":
            daemon.kill()
        else:
            daemon.stop()
        assert measuring.wait(60) != 0
        seen = [len(reader.rows()) for reader in readers]
        if ends != "spdlctl":
            daemon.start()
        wait_until(
            lambda: all(len(r.rows()) > s for r, s in zip(readers, seen, strict=True)),
            "further rows",
        )
        wait_until(lambda: credits() == [4] * RANKS, "slots as before")
    check_rows(daemon, tmp_path, [reader.rows() for reader in readers])


def test_the_outcome_is_shown_in_words(
    daemon: Any, tmp_path: pathlib.Path, wait_until: Callable[..., Any]
) -> None:
    with reading(daemon, "run", tmp_path) as readers:
        wait_until(lambda: all(reader.rows() for reader in readers), "rows")
        shown = daemon.ctl("headspace", "run", "--steps", "8").stdout
    assert shown.startswith(
        "job 'run' on pipeline 'images', 2 ranks, the slowest one:\na step now "
    )
    assert "a step with data ready" in shown and "% of a step" in shown
    refused = daemon.ctl("headspace", "run", "--steps", "7", check=False)
    assert refused.returncode == 2 and "it may be 8 to 1000" in refused.stderr

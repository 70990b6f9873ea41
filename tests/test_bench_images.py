# SPDX-License-Identifier: Apache-2.0
"""The benchmark measures what it says: whole process trees, and ratios round by round."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import memory
import processes
import pytest
import report
import run

FIGURES = {"images_per_s": 1.0, "cpu_ms_per_image": 1.0, "pss_mb": 1.0, "first_batch_ms": 1.0}


def result_of(rounds: list[dict[str, float]]) -> dict:
    """A result with images/s per round and side, everything else 1."""
    full = [
        {key: {**FIGURES, "images_per_s": value} for key, value in one.items()} for one in rounds
    ]
    return {
        "about": {
            "command": "./dev bench images",
            "machine": {
                "cpu": "x",
                "cores": 2,
                "memory_gb": 8,
                "kernel": "6",
                "load_at_start": 0.0,
            },
            "options": {"rounds": len(rounds), "seconds": 1.0, "batch": 4, "workers": 2},
        },
        "summary": run.summarize(full),
        "rounds": full,
    }


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    # The machine slows down by ten in the last round; side by side, nothing changed.
    result = result_of(
        [
            {"rrc/spdld": 300, "rrc/pytorch": 100},
            {"rrc/spdld": 310, "rrc/pytorch": 100},
            {"rrc/spdld": 30, "rrc/pytorch": 10},
        ]
    )
    assert report.ratio(result, "rrc", "spdld", "pytorch", "images_per_s") == 3.0


def test_there_is_no_ratio_to_a_side_that_did_not_run() -> None:
    result = result_of([{"rrc/spdld": 300}])
    assert report.ratio(result, "rrc", "spdld", "spdl", "images_per_s") is None
    assert "spdld /" not in report.loading_table(result)


def test_the_table_gives_median_least_and_most() -> None:
    table = report.loading_table(
        result_of([{"rrc/spdld": n, "rrc/floor": 400} for n in (100, 300, 200)])
    )
    assert "| spdld | 200 (100 to 300) |" in table
    assert "| 50 % |" in table


def test_cpu_time_includes_children_that_are_gone() -> None:
    before = processes.cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    assert processes.cpu_seconds(os.getpid()) > before + 0.02


def test_memory_includes_children_that_live() -> None:
    before = processes.pss_bytes(os.getpid())
    child = subprocess.Popen(
        [sys.executable, "-c", "x = b'1' * 80_000_000; print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert processes.pss_bytes(os.getpid()) > before + 70_000_000
    finally:
        child.communicate(b"\n")


def test_a_small_dataset_is_repeated_until_it_is_enough(tmp_path: pathlib.Path) -> None:
    for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    with memory.enough_images(str(tmp_path), 8) as repeated:
        files = [path for path in pathlib.Path(repeated).rglob("*.jpg")]
        assert len(files) == 9
        assert sorted({path.read_text() for path in files}) == ["a/1.jpg", "a/2.jpg", "b/1.jpg"]
    assert not pathlib.Path(repeated).exists()
    with memory.enough_images(str(tmp_path), 3) as same:
        assert same == str(tmp_path)


def test_a_side_that_fails_ends_the_benchmark_with_its_words() -> None:
    failed = subprocess.CompletedProcess(["x"], 3, stdout="", stderr="no such dataset")
    with pytest.raises(SystemExit, match=r"(?s)pytorch.*3.*no such dataset"):
        run.last_json(failed, "pytorch")

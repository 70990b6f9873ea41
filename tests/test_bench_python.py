# SPDX-License-Identifier: Apache-2.0
"""The benchmark of users' functions: what a stage costs is told beyond the pipeline without it."""

from __future__ import annotations

import pathlib
from typing import Any

import python_bench
import python_sides


def figures(us: float, cpu_us: float) -> dict[str, float]:
    spent = {"all_us_per_row": cpu_us, "daemon_us_per_row": cpu_us, "functions_us_per_row": 0.0}
    return {"rows_per_s": 1e6 / us, **spent}


def result_of(stages: list[float], without: list[float]) -> dict[str, Any]:
    """Of rows of 512 bytes, by one process: us a row in each round."""
    pairs = zip(stages, without, strict=True)
    return {
        "rounds": [
            {"512/1": figures(one, one), "512/none": figures(bare, bare)} for one, bare in pairs
        ]
    }


def test_a_stages_cost_is_the_median_of_the_rounds_differences() -> None:
    # The machine slows down by ten in the last round.
    told, _ = python_bench.costs(result_of([6, 7, 60], [2, 2, 20]))
    assert "| 512 B | 1 process | 5.0 (4.0 to 40.0) | 5.0 (4.0 to 40.0) | ≤ 5 |" in told


def test_what_costs_more_than_is_asked_for_is_told() -> None:
    assert python_bench.costs(result_of([7], [2]))[1] == []
    (line,) = python_bench.costs(result_of([7.5], [2]))[1]
    assert line == "rows of 512 B, 1 process: 5.5 us of CPU time, asked for 5"


def test_without_sides_to_compare_nothing_is_told() -> None:
    assert python_bench.costs({"rounds": [{"512/none": figures(2, 2)}]}) == ("", [])


def test_the_stage_calls_what_its_side_says(tmp_path: pathlib.Path) -> None:
    options = python_sides.Options("512", str(tmp_path), batch=4, workers=2, seed=1)
    without = python_sides.pipeline_spec(options, "none")["stages"]
    *before, stage = python_sides.pipeline_spec(options, "2-unkeyed")["stages"]
    assert before == without
    assert stage["python"]["call"] == "user_functions:same_unkeyed"
    assert stage["python"]["concurrency"] == 2

# SPDX-License-Identifier: Apache-2.0
"""The summary at the end of ./dev test counts what ctest and pytest wrote."""

from __future__ import annotations

import pathlib

import pytest
import summary


def write(path: pathlib.Path, cases: str) -> pathlib.Path:
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return path


def test_counts_what_ran_and_names_what_failed_or_was_skipped(tmp_path: pathlib.Path) -> None:
    path = write(
        tmp_path / "pytest.xml",
        '<testcase name="a" time="1.5"/>'
        '<testcase name="b" time="0.5"><failure/></testcase>'
        '<testcase name="c"><error/></testcase>'
        '<testcase name="d"><skipped/></testcase>',
    )
    assert summary.summarize(path) == (3, ["b", "c"], ["d"], 2.0)


def test_reads_the_way_in_which_ctest_says_failed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ctest.xml"
    path.write_text(
        '<testsuite><testcase name="ok" status="run"/>'
        '<testcase name="bad" status="fail"><failure message=""/></testcase></testsuite>'
    )
    assert summary.summarize(path)[1] == ["bad"]


def test_a_suite_that_did_not_run_is_left_out(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = write(tmp_path / "pytest.xml", '<testcase name="a" time="1"/>')
    summary.main([str(tmp_path / "ctest.xml"), str(ran)])
    assert capsys.readouterr().out == "pytest: 1 tests in 1 s, 0 failed, 0 skipped\n"

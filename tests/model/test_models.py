# SPDX-License-Identifier: Apache-2.0
"""Every state of the protocol's models, and the mistakes that the search must find."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

CHECK = pathlib.Path(__file__).with_name("check")
MODELS = sorted(path.name for path in CHECK.parent.glob("*.pml"))


def check(*arguments: str, program: pathlib.Path = CHECK) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True)


# All that it does is compute, and it shares the cores with other tests.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", MODELS)
def test_model_holds_and_its_mistakes_are_found(model: str) -> None:
    done = check(model)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    held = [line for line in lines if re.match(r"ok +holds ", line)]
    found = [line for line in lines if re.match(r"ok +fails ", line)]
    assert len(held) >= 1
    assert len(found) >= 4
    assert len(held) + len(found) == len(lines)


def test_every_mistake_that_is_built_into_a_model_is_searched_for() -> None:
    table = CHECK.read_text()
    flags = {
        (model, flag)
        for model in MODELS
        for flag in re.findall(r"\bBUG_\w+", (CHECK.parent / model).read_text())
    }
    assert flags
    for model, flag in flags:
        assert re.search(rf"^fails {re.escape(model)}\b.*-D{flag}\b", table, re.MULTILINE), flag


def broken(tmp_path: pathlib.Path, old: str, new: str) -> subprocess.CompletedProcess[str]:
    """The stream's check with `new` in place of `old` in the model."""
    text = (CHECK.parent / "stream.pml").read_text()
    assert old in text
    (tmp_path / "stream.pml").write_text(text.replace(old, new))
    program = tmp_path / "check"
    program.write_text(CHECK.read_text())
    program.chmod(0o755)
    return check("holds stream.pml -DSEEK", program=program)


def test_a_broken_promise_fails_the_check_and_shows_the_way_there(tmp_path: pathlib.Path) -> None:
    done = broken(tmp_path, "d.to_make = cursor;", "d.to_make = 0;")
    assert done.returncode == 1
    assert re.search(r"^WRONG +fails +stream\.pml", done.stdout, re.MULTILINE)
    assert "spin: trail ends after" in done.stdout


def test_a_search_that_does_not_come_to_its_end_fails_the_check(tmp_path: pathlib.Path) -> None:
    done = broken(tmp_path, "proctype Daemon()", "proctype Daemon(")
    assert done.returncode == 1
    assert re.search(r"^WRONG +broken +stream\.pml", done.stdout, re.MULTILINE)


def test_a_line_that_there_is_not_fails_the_check() -> None:
    done = check("no such model")
    assert done.returncode == 2
    assert "no line has 'no such model'" in done.stderr

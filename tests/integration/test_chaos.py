# SPDX-License-Identifier: Apache-2.0
"""A short chaos run, by tests/chaos/run.py; long ones are for whoever has an evening."""

from __future__ import annotations

import pathlib
import re

import pytest
from chaos import images, run
from integration.failpoints import needs_failpoints
from PIL import Image

# The same each time: a failure here is to be one that can be looked for.
SEED = "20"


@pytest.mark.parametrize("rows", ["files-dense", "webdataset-ragged"])
def test_kills_of_daemon_and_ranks_lose_nothing(
    capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    status = run.main(
        ["--seed", SEED, "--kills", "10", "--seconds", "10", "--jobs", "2", "--ranks", "2"]
        + ["--kind", rows]
    )
    said = capsys.readouterr().out
    print(said)
    assert status == 0
    assert "10 kill -9 of the daemon" in said
    assert "10 kill -9 of a rank" in said
    [batches] = re.findall(r"(\d+) batches", said)
    assert int(batches) > 100


def test_kills_of_what_runs_a_users_function_lose_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = run.main(
        ["--seed", SEED, "--kills", "4", "--seconds", "8", "--jobs", "1", "--ranks", "2"]
        + ["--swaps", "1", "--code"]
    )
    said = capsys.readouterr().out
    print(said)
    assert status == 0
    assert "4 kill -9 of what runs a function" in said


@needs_failpoints
def test_deaths_of_the_daemon_at_its_failpoints_amid_swaps_lose_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = run.main(
        ["--seed", SEED, "--kills", "12", "--seconds", "15", "--jobs", "2", "--ranks", "2"]
        + ["--swaps", "6", "--failpoints"]
    )
    said = capsys.readouterr().out
    print(said)
    assert status == 0
    [deaths] = re.findall(r"(\d+) deaths at failpoints", said)
    assert int(deaths) > 0


def test_a_picture_that_is_a_little_wrong_is_found_and_told_how_to_see_again(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
) -> None:
    write = images.write_images

    def write_one_wrong(root: pathlib.Path, count: int) -> None:
        write(root, count)
        # Compressed once more, which changes some of its pixels by little.
        Image.fromarray(images.expected(5)).save(root / "000005.jpg", quality=90)

    monkeypatch.setattr(images, "write_images", write_one_wrong)
    status = run.main(
        ["--seed", SEED, "--kills", "0", "--jobs", "1", "--ranks", "2", "--seconds", "5"]
        + ["--keep", str(tmp_path / "kept")]
    )
    said = capsys.readouterr().out
    assert status == 1
    assert "its pixels are not item 5's" in said
    assert re.search(r"again: .*run\.py --seed 20 .*--ranks 2", said)
    assert (tmp_path / "kept/daemon.log").read_text()

# SPDX-License-Identifier: Apache-2.0
"""The benchmark of tar shards: both forms hold the same samples, and what is asked for is compared."""

from __future__ import annotations

import pathlib
import tarfile

import compare
import comparison
import pytest
import tar_shards
import tar_sides


@pytest.fixture
def images(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("cat/1.jpg", "dog/2.jpg", "dog/3.jpg"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "images"


def result_of(images_per_s: dict[str, list[float]]) -> dict:
    """A result with images/s per side and round."""
    count = len(next(iter(images_per_s.values())))
    rounds = [
        {f"tar/{side}": {"images_per_s": values[one]} for side, values in images_per_s.items()}
        for one in range(count)
    ]
    return {"rounds": rounds}


def test_shards_and_files_hold_the_same_samples(
    images: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    samples = tar_shards.make(images, tmp_path / "out", count=7, shards=2)
    found = {}
    for shard in samples.shards:
        with tarfile.open(shard) as tar:
            for member in tar:
                found[member.name] = tar.extractfile(member).read()
    assert len(found) == 7 * 3
    assert found["00000004.jpg"] == b"dog/2.jpg" and found["00000004.cls"] == b"1"
    files = {path.name: path.read_bytes() for path in samples.files.rglob("*") if path.is_file()}
    assert files == {name: content for name, content in found.items() if ".cls" not in name}
    assert (samples.files / "cat/00000006.txt").read_text() == "image 6 of class cat"


def test_no_images_are_an_error_and_no_empty_shards(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="there is no file below"):
        tar_shards.make(tmp_path, tmp_path / "out", count=7, shards=2)


def test_what_is_asked_for_is_compared_round_by_round() -> None:
    # The machine slows down by ten in the last round; side by side, nothing changed.
    enough = result_of(
        {"spdld": [300, 310, 30], "webdataset": [100, 100, 10], "dali": [290, 300, 29]}
    )
    assert comparison.missed(compare.COMPARISON, enough) == []
    slow = result_of(
        {"spdld": [200, 210, 20], "webdataset": [100, 100, 10], "dali": [290, 300, 29]}
    )
    assert [line.split(":")[0] for line in comparison.missed(compare.COMPARISON, slow)] == [
        "spdld / webdataset + PyTorch DataLoader",
        "spdld / DALI, CPU",
    ]


def test_a_side_that_did_not_run_is_not_missed() -> None:
    assert comparison.missed(compare.COMPARISON, result_of({"spdld": [100]})) == []


def test_an_unknown_side_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        compare.parse(["--sides", "spdld,dally"])
    assert "no side 'dally': spdld, webdataset, dali" in capsys.readouterr().err


def test_crops_lie_within_their_image() -> None:
    for width, height in ((1, 1), (500, 2), (2, 500), (640, 480)):
        for _ in range(100):
            wide, high, left, top = tar_sides.draw_crop(width, height)
            assert 0 < wide <= width - left and 0 < high <= height - top
            assert left >= 0 and top >= 0

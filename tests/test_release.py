# SPDX-License-Identifier: Apache-2.0
"""One version stands everywhere, and what would be released is committed."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest
import release


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """What has a version, as a repository of its own."""
    for place in release.PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / place, tmp_path / place)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_every_place_has_the_version_of_the_project() -> None:
    assert release.disagreements(release.ROOT) == []


@pytest.mark.parametrize("place", [place for place in release.PLACES if place != release.PROJECT])
def test_a_place_with_another_version_is_named(checkout: pathlib.Path, place: str) -> None:
    version = release.version_at(checkout, place)
    file = checkout / place
    file.write_text(file.read_text().replace(version, "9.8.7"))
    [said] = release.disagreements(checkout)
    assert said == f"{place}: it has the version 9.8.7, and {release.PROJECT} {version}"
    file.write_text("nothing\n")
    [said] = release.disagreements(checkout)
    assert said.startswith(f"{place}: it has the version nowhere")


def test_a_new_version_of_the_project_is_missed_everywhere(checkout: pathlib.Path) -> None:
    file = checkout / release.PROJECT
    file.write_text(
        file.read_text().replace(release.version_at(checkout, release.PROJECT), "9.8.7")
    )
    assert len(release.disagreements(checkout)) == len(release.PLACES) - 1


def test_what_is_not_committed_is_named(checkout: pathlib.Path) -> None:
    assert release.uncommitted(checkout) == []
    (checkout / "new.txt").write_text("")
    assert release.uncommitted(checkout) == ["new.txt: it is not committed"]

# SPDX-License-Identifier: Apache-2.0
"""A change reaches the sources that include what was changed, and no others."""

from __future__ import annotations

import pathlib

import pytest
import reached

FILES = {
    "server/base/text.h": "",
    "server/source/list.h": '#include "base/text.h"\n',
    "server/source/list.cpp": '#include "source/list.h"\n',
    "server/media/image.cpp": "#include <vector>\n",
    "client/cpp/src/link.h": "",
    "client/cpp/src/link.cpp": '#include "link.h"\n',
    "client/ctl/show.cpp": "#include <spdld/v1/control.pb.h>\n",
    "proto/spdld/v1/control.proto": "",
}


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "sources"),
    [
        ("server/media/image.cpp", ["server/media/image.cpp"]),
        ("server/base/text.h", ["server/source/list.cpp"]),
        ("client/cpp/src/link.h", ["client/cpp/src/link.cpp"]),
        ("proto/spdld/v1/control.proto", ["client/ctl/show.cpp"]),
        ("docs/errors.md", []),
    ],
)
def test_a_change_reaches_the_sources_that_include_it(
    tree: pathlib.Path, changed: str, sources: list[str]
) -> None:
    assert reached.reached(tree, {changed}) == sources


@pytest.mark.parametrize("changed", [".clang-tidy", "dev", "server/media/CMakeLists.txt"])
def test_a_change_of_how_sources_are_read_reaches_all(tree: pathlib.Path, changed: str) -> None:
    everything = sorted(name for name in FILES if name.endswith(".cpp"))
    assert reached.reached(tree, {changed}) == everything


def test_a_unit_is_reached_through_the_sources_that_it_includes(tree: pathlib.Path) -> None:
    unit = tree / "build/units/one.cpp"
    unit.parent.mkdir(parents=True)
    unit.write_text('#include "server/media/image.cpp"\n#include "server/source/list.cpp"\n')
    assert reached.holds(tree, unit, {"server/source/list.cpp"})
    assert reached.holds(tree, tree / "server/media/image.cpp", {"server/media/image.cpp"})
    assert not reached.holds(tree, unit, {"client/ctl/show.cpp"})

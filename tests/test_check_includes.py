# SPDX-License-Identifier: Apache-2.0
"""The include check finds what it is meant to find, and nothing else."""

from __future__ import annotations

import pathlib
import re

import check_includes
import pytest


def breaches(root: pathlib.Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return check_includes.check(root)


@pytest.mark.parametrize(
    ("file", "line", "why"),
    [
        ("server/op/a.h", '#include "engine/plan/plan.h"', "op/ includes the higher engine/"),
        (
            "server/media/a.h",
            '#include "delivery/arena.h"',
            "media/ includes its sibling delivery/",
        ),
        ("server/control/a.cpp", '#include "observe/http.h"', "its sibling observe/"),
        ("server/base/a.cpp", '#  include "op/op.h"', "base/ includes the higher op/"),
        (
            "server/pipeline/a.h",
            '#include "stream/stream.h"',
            "pipeline/ includes the higher stream/",
        ),
        ("server/store/a.h", '#include "pipeline/catalogue.h"', "store/ includes its sibling"),
        ("server/job/a.h", '#include "session/job.h"', "job/ holds plain values, without session/"),
        (
            "server/job/a.h",
            '#include "base/mutex.h"',
            "job/ holds plain values, without base/mutex.h",
        ),
        ("server/job/a.cpp", "#include <thread>", "job/ holds plain values, without thread"),
        ("server/job/a.cpp", "#include <unistd.h>", "job/ holds plain values, without unistd.h"),
        ("server/session/a.cpp", "#include <sqlite3.h>", "SQLite belongs to server/store/"),
        ("server/source/a.h", "#include <yaml-cpp/yaml.h>", "yaml-cpp belongs to server/spec/"),
        ("server/transform/a.h", "#include <libswscale/swscale.h>", "FFmpeg belongs to"),
        ("server/engine/a.cpp", "#include <jpeglib.h>", "libjpeg belongs to"),
        ("server/engine/a.cpp", "#include <csetjmp>", "setjmp belongs to"),
        ("server/session/a.h", "#include <grpcpp/server.h>", "gRPC belongs to"),
        ("server/session/a.h", '#include "spdld/v1/control.pb.h"', "gRPC belongs to"),
        ("server/daemon.cpp", "#include <grpcpp/server.h>", "gRPC belongs to"),
        ("proto/spdld/wire.h", "#include <string>", "proto/ includes <cstdint> alone"),
        ("client/cpp/src/a.cpp", "#include <spdlog/spdlog.h>", "libspdld needs"),
        ("client/cpp/src/a.cpp", '#include "base/status.h"', "libspdld needs"),
        ("client/ctl/a.cpp", '#include "engine/plan/plan.h"', "clients know proto/"),
        ("server/media/bytes/a.h", '#include "media/image/b.h"', "media/bytes may not include"),
        ("server/media/image/a.h", '#include "media/ops.h"', "media/image may not include media/:"),
        ("server/media/new/a.h", '#include "media/image/b.h"', "media/new/ has no row in ROOMS"),
    ],
)
def test_reports_an_include_that_points_the_wrong_way(
    tmp_path: pathlib.Path, file: str, line: str, why: str
) -> None:
    found = breaches(tmp_path, {file: f"#pragma once\n{line}\n"})
    assert len(found) == 1
    assert found[0].startswith(f"{file}:2: ")
    assert why in found[0]


def test_accepts_includes_that_point_down(tmp_path: pathlib.Path) -> None:
    assert not breaches(
        tmp_path,
        {
            "server/engine/a.cpp": '#include "engine/a.h"\n#include "media/jpeg/a.h"\n#include <map>\n',
            "server/media/jpeg/a.cpp": '#include "media/jpeg/a.h"\n#include "media/image/a.h"\n',
            "server/spec/a.cpp": "#include <yaml-cpp/yaml.h>\n",
            "server/media/a.cpp": "#include <csetjmp>\n#include <jpeglib.h>\n",
            "server/daemon.cpp": '#include "control/server.h"\n#include "observe/http.h"\n',
            "server/control/a.cpp": '#include "spdld/v1/control.grpc.pb.h"\n',
            "client/cpp/src/a.cpp": '#include "spdld/wire.h"\n#include <sys/mman.h>\n#include <poll.h>\n',
            "proto/spdld/wire.h": "#include <cstdint>\n",
        },
    )


def test_rooms_of_a_folder_form_no_circle() -> None:
    def reachable(rooms: dict[str, set[str]], room: str, path: tuple[str, ...]) -> None:
        assert room not in path, f"a circle: {path} {room}"
        for other in rooms[room]:
            reachable(rooms, other, (*path, room))

    for rooms in check_includes.ROOMS.values():
        for room in rooms:
            reachable(rooms, room, ())


def test_the_page_of_the_architecture_has_a_line_for_each_room() -> None:
    page = pathlib.Path(__file__).parent.parent / "docs/architecture.md"
    folder, listed = "", set()
    for line in page.read_text().splitlines():
        if row := re.match(r"\| (?:\*\*`(?:.*/)?(\w+)/`\*\* )?(?:`(\w+)/`|itself) \|", line):
            folder = row[1] or folder
            listed.add((folder, row[2]))
    held = {(folder, room) for folder, rooms in check_includes.ROOMS.items() for room in rooms}
    assert {(folder, room) for folder, room in held if room} <= listed


def test_ignores_comments_and_other_files(tmp_path: pathlib.Path) -> None:
    assert not breaches(
        tmp_path,
        {
            "server/op/a.h": '// #include "engine/plan/plan.h"\n',
            "server/op/notes.md": '#include "engine/plan/plan.h"\n',
        },
    )


def test_exit_status_tells_a_script(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_includes.main([str(tmp_path)]) == 0
    breaches(tmp_path, {"server/op/a.h": '#include "engine/plan/plan.h"\n'})
    assert check_includes.main([str(tmp_path)]) == 1
    assert "server/op/a.h:1: " in capsys.readouterr().out

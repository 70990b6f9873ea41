# SPDX-License-Identifier: Apache-2.0
"""The fake daemon, and spdld.runner, speak what proto/spdld/*.h says: sizes and members, by the
headers' text."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from fake_daemon import FRAMES as DAEMON_FRAMES
from fake_daemon import TEXT_KEYS, TYPES
from spdld import _runner_frames as runner

FRAMES = {**DAEMON_FRAMES, **runner.FRAMES}
_PROTO = Path(__file__).parents[3] / "proto" / "spdld"
_TEXT = "".join((_PROTO / name).read_text() for name in ("wire.h", "arena.h", "runner.h"))
_SIZES = {
    name: int(size)
    for name, size in re.findall(r"static_assert\(sizeof\((\w+)\) == (\d+)\);", _TEXT)
}
_CODES = {
    "std::uint64_t": "Q",
    "std::int64_t": "q",
    "std::uint32_t": "I",
    "std::int32_t": "i",
    "FrameHeader": "II",
    "FrameType": "I",
    "TextKey": "I",
    "StartMode": "I",
    "QueryKind": "I",
    "BlobKind": "I",
    "ApplyAt": "I",
    "ByeReason": "I",
    "FieldKind": "I",
    "DType": "I",
    "DeviceMemoryKind": "I",
    "RunnerHeader": "II",
    "RunnerFrameType": "I",
    "EndReason": "I",
    "AnswerKind": "I",
}
_COUNTS = {"kMaxRank": 8, "kWaitLengths": 6}


def _members(name: str) -> str:
    """The struct's members as struct codes."""
    body = re.search(rf"struct {name} {{\n(.*?)\n}};", _TEXT, re.DOTALL).group(1)
    codes = ""
    for kind, count in re.findall(r"^  ([\w:]+) \w+(?:\[(\w+)\])?;", body, re.MULTILINE):
        if kind in _SIZES and kind not in _CODES:
            codes += _members(kind)
        elif kind in ("char", "std::uint8_t"):
            codes += f"{count}s"
        else:
            codes += _CODES[kind] * (_COUNTS.get(count, 0) or int(count or 1))
    return codes


def _expanded(code: str) -> str:
    parts = re.findall(r"(\d*)([A-Za-z])", code)
    return "".join(n + c if c == "s" else c * int(n or 1) for n, c in parts)


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_has_the_size_that_the_header_asserts(name: str) -> None:
    assert FRAMES[name].size == _SIZES[name]


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_has_the_members_of_the_header_in_their_order(name: str) -> None:
    assert _expanded(FRAMES[name].format.lstrip("<")) == _members(name)


@pytest.mark.parametrize("name", FRAMES)
def test_no_frame_has_padding_that_only_one_side_would_see(name: str) -> None:
    assert struct.calcsize(FRAMES[name].format.replace("<", "@")) == FRAMES[name].size


def test_frame_types_have_the_numbers_of_the_header() -> None:
    body = re.search(r"enum class FrameType[^{]*{(.*?)};", _TEXT, re.DOTALL).group(1)
    assert {n: int(v) for n, v in re.findall(r"k(\w+) = (\d+)", body)} == TYPES


def test_text_keys_have_the_numbers_of_the_header() -> None:
    body = re.search(r"enum class TextKey[^{]*{(.*?)};", _TEXT, re.DOTALL).group(1)
    assert sorted(int(v) for v in re.findall(r"= (\d+)", body)) == sorted(TEXT_KEYS)


@pytest.mark.parametrize(
    ("enum", "numbers"),
    [
        ("RunnerFrameType", runner.TYPES),
        ("AnswerKind", runner.ANSWERS),
        ("EndReason", runner.REASONS),
    ],
)
def test_a_runner_has_the_numbers_of_the_header(enum: str, numbers: dict[str, int]) -> None:
    body = re.search(rf"enum class {enum}[^{{]*{{(.*?)}};", _TEXT, re.DOTALL).group(1)
    assert {n: int(v) for n, v in re.findall(r"k(\w+) = (\d+)", body)} == numbers


@pytest.mark.parametrize(
    ("constant", "number"),
    [
        ("kRunnerMagic", runner.MAGIC),
        ("kRunnerVersion", runner.VERSION),
        ("kMaxRunnerFrameBytes", runner.MAX_FRAME_BYTES),
        ("kCells", runner.CELLS),
        ("kMaxCallRows", runner.MAX_CALL_ROWS),
        ("kDataAlignment", runner.ALIGNMENT),
    ],
)
def test_a_runner_has_the_constants_of_the_header(constant: str, number: int) -> None:
    assert int(re.search(rf" {constant} = (\w+);", _TEXT).group(1), 0) == number

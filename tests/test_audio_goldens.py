# SPDX-License-Identifier: Apache-2.0
"""The values of tests/goldens/audio.json are those of the torchaudio that is installed here, too."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import pytest

pytest.importorskip("torchaudio", reason="no torchaudio")

sys.path.insert(0, str(pathlib.Path(__file__).parent / "goldens"))
import make_audio

# Whisper's package is not in Debian.
CASES = [
    case for case in json.loads(make_audio.GOLDENS.read_text())["cases"] if case["op"] != "log_mel"
]


@pytest.mark.filterwarnings("ignore:At least one mel filterbank has all zero values")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['op']} {case['params']}")
def test_goldens_are_what_this_torchaudio_makes(case: dict[str, Any]) -> None:
    shape, values = make_audio.sampled(
        case["op"], case["params"], case["sample_rate"], case["channels"], case["samples"]
    )
    assert shape == case["shape"]
    largest = max(abs(value) for value in values)
    # Decibels of what is near 0 magnify what float32 rounds.
    share = 1e-4 if case["op"] == "amplitude_to_db" else 2e-6
    assert values == pytest.approx(case["values"], rel=1e-5, abs=share * largest)

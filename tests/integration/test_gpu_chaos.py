# SPDX-License-Identifier: Apache-2.0
"""Short runs of what ./dev test long gpu-kills and gpu-schedules do at length, on the fake GPU."""

from __future__ import annotations

import re

import on_gpu
import pytest
from chaos import gpu_schedules, run

pytestmark = pytest.mark.skipif(
    not on_gpu.library().exists(), reason="built without the headers of the CUDA Toolkit"
)
# The same each time: a failure here is to be one that can be looked for.
SEED = "20"


def test_kills_while_batches_lie_on_a_gpu_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    status = run.main(
        ["--device", "cuda", "--seed", SEED, "--kills", "5", "--terms", "0", "--swaps", "2"]
        + ["--freezes", "1", "--consumer-kills", "15", "--seconds", "10"]
        + ["--jobs", "1", "--ranks", "3", "--items", "101"]
    )
    said = capsys.readouterr().out
    print(said)
    assert status == 0
    assert "5 kill -9 of the daemon" in said and "15 kill -9 of a rank" in said


def test_late_copies_and_late_kernels_find_what_their_batches_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = gpu_schedules.main(["--seed", SEED, "--count", "30"])
    said = capsys.readouterr().out
    print(said)
    assert status == 0
    [(kernels, copies, maps)] = re.findall(r"(\d+) kernels, (\d+) copies, (\d+) arenas", said)
    assert int(kernels) > 300
    assert int(copies) > 50, "by the loader"
    assert int(maps) > 5, "by the daemon"

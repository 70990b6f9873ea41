# SPDX-License-Identifier: Apache-2.0
"""./dev bench audio: windows of sound by spdld beside torchaudio under DataLoader, SPDL and DALI."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import audio_data
import comparison

COMPARISON = comparison.Comparison(
    name="audio",
    about=__doc__,
    script=pathlib.Path(__file__).resolve().with_name("audio_sides.py"),
    unit="window",
    names={
        "spdld": "spdld",
        "dataloader": "torchaudio + PyTorch DataLoader",
        "spdl": "SPDL",
        "dali": "DALI, CPU",
    },
    modules={
        "spdld": (),
        "dataloader": ("torchaudio", "torchcodec", "soundfile"),
        "spdl": ("spdl", "torchaudio"),
        "dali": ("nvidia.dali",),
    },
    packages=("torch", "torchaudio", "torchcodec", "soundfile", "spdl", "nvidia-dali-cuda120"),
    tasks={
        "wav": comparison.Task(
            title="wav, 10 s to log-mel",
            sides=("spdld", "dataloader", "spdl", "dali"),
            asked={"dataloader": 2.0},
        ),
        "mp3": comparison.Task(
            title="mp3, 10 s to log-mel",
            sides=("spdld", "dataloader", "spdl"),  # DALI reads no mp3
            asked={"dataloader": 2.0, "spdl": 2.0},
        ),
        "windows": comparison.Task(
            title="wav, 10 ms",
            sides=("spdld", "dataloader", "spdl"),
            asked={},
            least=50_000,
        ),
    },
)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = comparison.parser_of(COMPARISON, warmup=3)
    parser.add_argument("--batch", type=int, default=32, help="windows of 10 s")
    parser.add_argument("--short-batch", type=int, default=1024, help="windows of 10 ms")
    return comparison.parsed(COMPARISON, parser, argv)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    comparison.leave_out_missing(COMPARISON, arguments)
    roots = {kind: audio_data.make(kind) for kind in ("wav", "mp3")}

    def options_of(task: str, _side: str, seed: int) -> dict[str, Any]:
        root = roots["mp3" if task == "mp3" else "wav"]
        files = sorted(root.iterdir())
        return {
            "task": task,
            "root": str(root),
            "files": [(str(path), audio_data.seconds_of(int(path.stem))) for path in files],
            "batch": arguments.short_batch if task == "windows" else arguments.batch,
            "workers": arguments.workers,
            "seed": seed,
        }

    said = (
        f"{audio_data.FILES} files of {audio_data.LEAST_S:g} to {audio_data.MOST_S:g} s,"
        f" batch {arguments.batch}, of 10 ms windows {arguments.short_batch}"
    )
    return comparison.compare(COMPARISON, arguments, argv, roots, options_of, said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

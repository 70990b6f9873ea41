# SPDX-License-Identifier: Apache-2.0
"""./dev bench video: random clips of short and long videos by spdld beside PyAV, torchcodec and SPDL."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import comparison
import video_data
import video_sides

SIDES = ("spdld", "pyav", "torchcodec", "spdl", "floor")
SHORT = {"pyav": 1.3, "torchcodec": 1.3, "spdl": 2.0, "floor": 0.85}
LONG = {"pyav": 1.3, "torchcodec": 1.3, "spdl": 3.0, "floor": 0.85}
VIDEOS = {
    "180-short": video_data.Videos(320, 180, seconds=10, count=8),
    "180-long": video_data.Videos(320, 180, seconds=600, count=2),
    "720-short": video_data.Videos(1280, 720, seconds=10, count=8),
    "720-long": video_data.Videos(1280, 720, seconds=600, count=2),
}
COMPARISON = comparison.Comparison(
    name="video",
    about=__doc__,
    script=pathlib.Path(__file__).resolve().with_name("video_sides.py"),
    unit="clip",
    names={
        "spdld": "spdld",
        "pyav": "PyAV + PyTorch DataLoader",
        "torchcodec": "torchcodec + PyTorch DataLoader",
        "spdl": "SPDL",
        "floor": "bare libavcodec",
    },
    modules={
        "spdld": (),
        "pyav": ("av",),
        "torchcodec": ("torchcodec",),
        "spdl": ("spdl",),
        "floor": (),
    },
    floors=frozenset({"floor"}),
    packages=("torch", "av", "torchcodec", "spdl"),
    tasks={
        name: comparison.Task(
            title=f"{videos.width}x{videos.height}, {videos.duration}",
            sides=SIDES,
            asked=LONG if name.endswith("long") else SHORT,
        )
        for name, videos in VIDEOS.items()
    },
)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = comparison.parser_of(COMPARISON, warmup=3)
    parser.add_argument("--stride", type=int, default=4, help="a clip has each so manyth frame")
    parser.add_argument("--batch", type=int, default=8)
    return comparison.parsed(COMPARISON, parser, argv)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    comparison.leave_out_missing(COMPARISON, arguments)
    roots = {task: video_data.make(VIDEOS[task]) for task in arguments.tasks}

    def options_of(task: str, _side: str, seed: int) -> dict[str, Any]:
        videos = VIDEOS[task]
        return {
            "root": str(roots[task]),
            "files": [str(path) for path in sorted(roots[task].iterdir())],
            "width": videos.width,
            "height": videos.height,
            "fps": video_data.FPS,
            "frames": videos.frames,
            "stride": arguments.stride,
            "batch": arguments.batch,
            "workers": arguments.workers,
            "seed": seed,
        }

    said = (
        f"clips of {video_sides.FRAMES} frames, stride {arguments.stride}, H.264 with a key frame at"
        f" each 250th frame, batch {arguments.batch}"
    )
    return comparison.compare(COMPARISON, arguments, argv, roots, options_of, said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

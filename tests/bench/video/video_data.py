# SPDX-License-Identifier: Apache-2.0
"""The videos of ./dev bench video: moving patterns with noise, as H.264 in mp4 with x264's own GOPs.

Without cuts in the picture, x264 puts a key frame at each 250th frame, its default, so that a random
clip needs 125 frames before it on average. B-frames are there, too.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generated

FPS = 25
BITS_PER_S = {180: "300k", 720: "1500k"}


@dataclasses.dataclass(frozen=True)
class Videos:
    width: int
    height: int
    seconds: int  # of each file, all of FPS frames a second
    count: int

    @property
    def frames(self) -> int:
        return self.seconds * FPS

    @property
    def duration(self) -> str:
        return f"{self.seconds // 60} min" if self.seconds >= 60 else f"{self.seconds} s"

    @property
    def name(self) -> str:
        return f"video-{self.width}x{self.height}-{self.seconds}s-{self.count}"


def source(videos: Videos, number: int) -> str:
    size = f"{videos.width}x{videos.height}"
    if number % 2 == 0:
        picture = f"testsrc2=size={size}:rate={FPS}"
    else:
        # It is slow to draw; its details are made from few pixels.
        picture = f"mandelbrot=size=320x180:rate={FPS}:start_x=-0.74{number},scale={size}"
    return f"{picture},hue=h={number * 40},noise=alls=6:allf=t:all_seed={number},format=yuv420p"


def _encode(videos: Videos, number: int, seconds: int, out: pathlib.Path) -> None:
    rate = BITS_PER_S[videos.height]
    generated.ffmpeg(
        *("-f", "lavfi", "-i", source(videos, number), "-t", seconds),
        *("-c:v", "libx264", "-preset", "veryfast", "-b:v", rate, "-maxrate", rate),
        *("-bufsize", rate, "-movflags", "+faststart", out),
    )


def make(videos: Videos) -> pathlib.Path:
    """The directory of these videos; a long one is a minute that is repeated, packet by packet."""

    def fill(directory: pathlib.Path) -> None:
        for number in range(videos.count):
            out = directory / f"{number:02}.mp4"
            if videos.seconds <= 60:
                _encode(videos, number, videos.seconds, out)
                continue
            minute = directory / "minute.mp4"
            _encode(videos, number, 60, minute)
            generated.ffmpeg(
                *("-stream_loop", videos.seconds // 60 - 1, "-i", minute, "-c", "copy"),
                *("-movflags", "+faststart", out),
            )
            minute.unlink()

    return generated.kept(videos.name, fill)

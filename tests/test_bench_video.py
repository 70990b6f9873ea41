# SPDX-License-Identifier: Apache-2.0
"""The benchmark of video: clips that are drawn lie within their videos, and what is asked for is compared."""

from __future__ import annotations

import random
from typing import Any

import comparison
import run
import video_bench
import video_data
import video_sides


def result_of(speeds: dict[str, list[float]]) -> dict[str, Any]:
    """A result with clips/s per `TASK/SIDE` and round, everything else 1."""
    of = video_bench.COMPARISON
    rounds = [
        {
            key: {of.speed: values[one], of.cpu: 1.0, "pss_mb": 1.0, "first_batch_ms": 1.0}
            for key, values in speeds.items()
        }
        for one in range(len(next(iter(speeds.values()))))
    ]
    machine = {"cpu": "x", "cores": 2, "memory_gb": 8, "kernel": "6", "load_at_start": 0.0}
    options = {"rounds": len(rounds), "seconds": 1.0, "workers": 2}
    about = {"command": "x", "machine": machine, "options": options, "packages": {}}
    return {"about": about, "summary": run.summarize(rounds), "rounds": rounds}


def options(**changed: Any) -> video_sides.Options:
    values: dict[str, Any] = {
        "root": "/data",
        "files": ["/data/1.mp4", "/data/2.mp4"],
        "width": 320,
        "height": 180,
        "fps": 25,
        "frames": 250,
        "stride": 4,
        "batch": 8,
        "workers": 2,
        "seed": 1,
    }
    return video_sides.Options(**{**values, **changed})


def test_tasks_are_compared_each_with_what_is_asked_of_it() -> None:
    speeds = {"180-short/spdld": [25.0, 2.5], "180-short/spdl": [10.0, 1.0]}
    speeds |= {f"180-long/{key.split('/')[1]}": values for key, values in speeds.items()}
    lines = comparison.missed(video_bench.COMPARISON, result_of(speeds))
    assert lines == ["320x180, 10 min: spdld / SPDL: 2.500, asked for 3"]


def test_clips_and_crops_lie_within_their_videos() -> None:
    of_short = options(frames=61)
    assert of_short.span == 61 and of_short.resized == (227, 128)
    for _ in range(200):
        drawn = video_sides.draw(of_short, random.Random())
        assert drawn.first == 0 and drawn.path in of_short.files
        assert 0 <= drawn.left <= 227 - 112 and 0 <= drawn.top <= 128 - 112


def test_names_of_videos_say_all_that_they_depend_on() -> None:
    videos = video_data.Videos(320, 180, seconds=600, count=2)
    assert videos.name == "video-320x180-600s-2"
    assert (videos.frames, videos.duration) == (15000, "10 min")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: clips of 100,000 videos: the index's time and size, the daemon's memory, restarts
# build: release spdld spdlctl
"""media-scale.py [VIDEOS]: 100,000 videos of five seconds if not said, 2.6 GB in $TMPDIR.

Prints times: of the index (cold and with the page cache warm), and from a killed daemon to the first
batch of its successor. Fails if the index takes more than 1,500 bytes a video, or that restart more
than two seconds.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import scale

KINDS = 16  # of contents: each video has one of them, in a file of its own
FRAMES = 125
MOST_INDEX_BYTES = 1500  # a video
MOST_RESTART_S = 2.0
RESTARTS = 5


def make_videos(directory: pathlib.Path, count: int) -> list[pathlib.Path]:
    contents = []
    for kind in range(KINDS):
        path = directory / f"kind-{kind}.mp4"
        noise = f"testsrc2=s=96x64:r=25,noise=alls=8:all_seed={kind}"
        subprocess.run(
            ["ffmpeg", "-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", noise]
            + ["-frames:v", str(FRAMES), "-c:v", "libx264", "-crf", "32", "-g", "50", path],
            check=True,
        )
        contents.append(path.read_bytes())
        path.unlink()
    paths = [directory / f"{number // 1000:03}/{number:06}.mp4" for number in range(count)]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(contents[number % KINDS])
    os.sync()
    return paths


def write_pipeline(path: pathlib.Path, root: pathlib.Path) -> pathlib.Path:
    spec = {
        "pipeline": "scale",
        "seed": 1,
        "source": {
            "files": {"root": str(root), "pattern": "**/*.mp4", "field": "video"},
            "clips": {"frames": 16, "stride": 4, "sampling": "random"},
        },
        "shuffle": "global",
        "stages": ["fetch", "decode_video", {"resize": {"size": [32, 32]}}],
        "batch": {"size": 16, "last": "drop"},
    }
    path.write_text(json.dumps(spec))
    return path


def run(directory: pathlib.Path, videos: list[pathlib.Path]) -> list[str]:
    """What is more than it may be."""
    pipeline = write_pipeline(directory / "scale.yaml", directory / "videos")
    seen = scale.measure(pipeline, videos, ".mediaindex", batches=20, count=RESTARTS)
    per_video = seen.index_bytes / len(videos)
    print(f"{seen.text()}\nindex: {per_video:.0f} bytes a video of at most {MOST_INDEX_BYTES}")
    failures = []
    if not 0 < per_video <= MOST_INDEX_BYTES:
        failures.append(f"the index takes {per_video:.0f} bytes a video")
    if seen.restarts[RESTARTS // 2] > MOST_RESTART_S:
        failures.append(f"a restart takes {seen.restarts[RESTARTS // 2]:.2f} s")
    return failures


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory(prefix="spdld-scale-") as scratch:
        directory = pathlib.Path(scratch)
        (directory / "videos").mkdir()
        began = time.monotonic()
        videos = make_videos(directory / "videos", count)
        size = sum(video.stat().st_size for video in videos)
        print(
            f"{count} videos, {size / 1e9:.2f} GB, made in {time.monotonic() - began:.0f} s;"
            f" load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        failures = run(directory, videos)
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

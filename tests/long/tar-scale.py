#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: 1.3 million samples in 130 tar shards: the index's time and size, the daemon's memory, restarts
# build: release spdld spdlctl
"""tar-scale.py [SHARDS [SAMPLES]]: 130 shards of 10,000 samples if not said, 4.3 GB in $TMPDIR.

Prints times, which are no bars: of the index (cold and with the page cache warm), from a killed
daemon to the first batch of its successor, and of the webdataset package that reads the same shards
once, if .venv-peers has it (./dev bench webdataset makes that). Fails if the index takes more
than 24 bytes a sample, or the daemon 200 MiB more than an empty one.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import scale
from daemon import REPOSITORY
from scale import MIB

MOST_INDEX_BYTES = 24  # a sample
MOST_GROWTH = 200 * MIB
RESTARTS = 5
ITERATE = """
import sys, time, webdataset
began, count = time.monotonic(), 0
for sample in webdataset.WebDataset(sys.argv[1:], shardshuffle=False):
    count += 1
print(webdataset.__version__, count, time.monotonic() - began)
"""


def one_shard(samples: int) -> bytes:
    """Samples of three parts that fit a tar block each."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(samples):
            parts = {
                "jpg": b"\xff\xd8" + number.to_bytes(4, "big") * (1 + number % 64),
                "json": json.dumps({"number": number}).encode(),
                "txt": f"caption of sample {number}".encode(),
            }
            for suffix, content in parts.items():
                info = tarfile.TarInfo(f"train/{number:08}.{suffix}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def make_shards(directory: pathlib.Path, shards: int, samples: int) -> list[pathlib.Path]:
    """Keys need be unique only in a shard: all have the same bytes, each in a file of its own."""
    content = one_shard(samples)
    paths = [directory / f"train-{shard:05}.tar" for shard in range(shards)]
    for path in paths:
        path.write_bytes(content)
    os.sync()
    return paths


def write_pipeline(path: pathlib.Path, shards: list[pathlib.Path]) -> pathlib.Path:
    fields = {"image": "jpg", "meta": "json", "caption": "txt"}
    spec = {
        "pipeline": "scale",
        "seed": 1,
        "source": {"webdataset": {"shards": [str(shard) for shard in shards], "fields": fields}},
        "stages": ["fetch"],
        "batch": {"size": 64, "max_bytes": "1MiB"},
    }
    path.write_text(json.dumps(spec))
    return path


def run(directory: pathlib.Path, shards: list[pathlib.Path], samples: int) -> list[str]:
    """What is more than it may be."""
    pipeline = write_pipeline(directory / "scale.yaml", shards)
    seen = scale.measure(pipeline, shards, ".tarindex", batches=200, count=RESTARTS)
    per_sample = seen.index_bytes / samples
    growth = max(seen.indexed, seen.read, seen.again) - seen.empty
    print(
        f"{seen.text()}\n"
        f"index: {per_sample:.2f} bytes a sample of at most {MOST_INDEX_BYTES}; the daemon at most"
        f" {MOST_GROWTH / MIB:.0f} MiB more than empty"
    )
    failures = []
    if not 0 < per_sample <= MOST_INDEX_BYTES:
        failures.append(f"the index takes {per_sample:.2f} bytes a sample")
    if growth > MOST_GROWTH:
        failures.append(f"the daemon has {growth / MIB:.0f} MiB more than an empty one")
    return failures


def print_webdataset(shards: list[pathlib.Path]) -> None:
    python = REPOSITORY / ".venv-peers/bin/python"
    if not python.exists():
        print("webdataset: not installed; ./dev bench webdataset does so")
        return
    done = subprocess.run(
        [python, "-c", ITERATE, *shards], stdout=subprocess.PIPE, text=True, check=True
    )
    version, count, seconds = done.stdout.split()
    print(f"webdataset {version}: {float(seconds):.1f} s to read {count} samples once")


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 130
    samples = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    with tempfile.TemporaryDirectory(prefix="spdld-scale-") as scratch:
        directory = pathlib.Path(scratch)
        began = time.monotonic()
        shards = make_shards(directory, count, samples)
        size = sum(shard.stat().st_size for shard in shards)
        print(
            f"{count * samples} samples in {count} shards, {size / 1e9:.2f} GB, made in"
            f" {time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f}"
        )
        failures = run(directory, shards, count * samples)
        print_webdataset(shards)
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

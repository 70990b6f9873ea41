# SPDX-License-Identifier: Apache-2.0
"""./dev bench handoff: from a finished batch in the daemon to a tensor in the rank.

spdld_delivery_bench measures delivery alone, a server and a consumer with nothing to decode.
`spdlctl bench handoff` measures a whole daemon in C++, this file then in Python: how long next()
takes while batches are ready, again with the batch made into torch tensors, and of batches of images with captions and
ragged boxes. The pipelines deliver a few tiny images, so that making batches is not what is measured.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from daemon import Daemon, build_dir
from PIL import Image

IMAGES = 4096
BATCH = 16


def write_pipeline(directory: pathlib.Path) -> pathlib.Path:
    """One image under many names: listing and order are real, decoding costs next to nothing."""
    data = directory / "data/one"
    data.mkdir(parents=True)
    Image.new("RGB", (8, 8), (200, 100, 50)).save(data / "00000.jpg")
    for index in range(1, IMAGES):
        (data / f"{index:05}.jpg").symlink_to("00000.jpg")
    path = directory / "handoff.yaml"
    path.write_text(
        json.dumps(
            {
                "pipeline": "handoff",
                "source": {"files": {"root": str(data.parent), "label": "parent_dir"}},
                "shuffle": "none",
                "stages": ["fetch", "decode_image", {"resize": {"size": [8, 8]}}],
                "batch": {"size": BATCH},
                "delivery": {"prefetch": 16},
            }
        )
    )
    return path


def write_detection(directory: pathlib.Path) -> pathlib.Path:
    """The same images, each with a caption and up to seven boxes."""
    rows = [
        {
            "path": f"one/{index:05}.jpg",
            "caption": f"image {index}, " + "a small square " * (index % 5),
            "boxes": [0, 0, 4, 4] * (index % 8),
        }
        for index in range(IMAGES)
    ]
    (directory / "data/items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = directory / "detection.yaml"
    table = {
        "file": str(directory / "data/items.jsonl"),
        "uri": {"image": "path"},
        "values": {"caption": "caption", "boxes": "boxes"},
    }
    path.write_text(
        json.dumps(
            {
                "pipeline": "detection",
                "source": {"table": table},
                "shuffle": "none",
                "stages": [
                    "fetch",
                    "decode_image",
                    {"bounding_boxes": {"field": "boxes"}},
                    {"resize": {"size": [8, 8]}},
                ],
                "batch": {"size": BATCH},
                "delivery": {"prefetch": 16},
            }
        )
    )
    return path


def latencies_us(
    address: str, pipeline: str, output: str | tuple[str, ...], rounds: int
) -> list[float]:
    """Of single next() calls, right after a pause in which the daemon has filled every credit."""
    import spdld

    loader = spdld.Loader(pipeline, address=address, prefetch=16, output=output)
    batches = iter(loader)
    samples: list[float] = []
    for _ in range(rounds):
        for _ in range(8):
            begun = time.perf_counter_ns()
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                continue
            samples.append((time.perf_counter_ns() - begun) / 1000)
            del batch
        time.sleep(0.005)
    loader.close()
    return samples


def show(what: str, samples: list[float]) -> None:
    cuts = statistics.quantiles(samples, n=100)
    print(
        f"{what:<38} median {statistics.median(samples):7.1f} us   p90 {cuts[89]:7.1f} us"
        f"   p99 {cuts[98]:7.1f} us   ({len(samples)} batches)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench handoff", description=__doc__)
    parser.add_argument("--rounds", type=int, default=500, help="of eight batches")
    rounds = parser.parse_args().rounds
    subprocess.run([build_dir() / "bin/spdld_delivery_bench"], check=True)
    with Daemon() as daemon:
        daemon.start()
        daemon.ctl("apply", "-f", write_pipeline(daemon.directory))
        print(daemon.ctl("bench", "handoff", "handoff").stdout, end="")
        show("Python next()", latencies_us(daemon.address, "handoff", "batch", rounds))
        torch_output = ("image", "label")
        show(
            "Python next(), torch tensors",
            latencies_us(daemon.address, "handoff", torch_output, rounds),
        )
        daemon.ctl("apply", "-f", write_detection(daemon.directory))
        show(
            "Python next(), with captions and boxes",
            latencies_us(daemon.address, "detection", "batch", rounds),
        )


if __name__ == "__main__":
    main()

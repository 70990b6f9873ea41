# SPDX-License-Identifier: Apache-2.0
"""./dev bench webdataset: samples of tar shards by spdld beside the webdataset package, DALI and SPDL."""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import comparison
import run
import tar_shards
from daemon import REPOSITORY

NAMES = {
    "spdld": "spdld",
    "webdataset": "webdataset + PyTorch DataLoader",
    "dali": "DALI, CPU",
    "spdl": "SPDL",
    "spdld-files": "spdld, the images as plain files",
}
COMPARISON = comparison.Comparison(
    name="webdataset",
    about=__doc__,
    script=pathlib.Path(__file__).resolve().with_name("tar_sides.py"),
    unit="image",
    names=NAMES,
    modules={
        "spdld": (),
        "webdataset": ("webdataset",),
        "dali": ("nvidia.dali",),
        "spdl": ("spdl",),
        "spdld-files": (),
    },
    packages=("torch", "torchvision", "webdataset", "nvidia-dali-cuda120", "spdl"),
    tasks={
        "tar": comparison.Task(
            title="tar shards",
            sides=tuple(NAMES),
            asked={"webdataset": 2.4, "dali": 1.0, "spdl": 1.0, "spdld-files": 0.97},
        )
    },
)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = comparison.parser_of(COMPARISON)
    parser.add_argument("--data", help="an ImageFolder of JPEGs; default: some are made")
    parser.add_argument("--samples", type=int, default=3000, help="the images, repeated")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    return comparison.parsed(COMPARISON, parser, argv)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    comparison.leave_out_missing(COMPARISON, arguments)
    about = comparison.about(COMPARISON, argv, arguments)
    with tempfile.TemporaryDirectory(prefix="spdld-bench-") as scratch:
        if arguments.data is None:
            images = pathlib.Path(scratch) / "images"
            maker = REPOSITORY / "examples/demo/make_images.sh"
            subprocess.run([maker, images, "64"], check=True)
        else:
            images = pathlib.Path(arguments.data).resolve()
        samples = tar_shards.make(
            images, pathlib.Path(scratch) / "samples", arguments.samples, arguments.shards
        )
        about["data_mb"] = round(run.warm_page_cache(scratch) / 1e6)

        def options_of(_task: str, _side: str, seed: int) -> dict[str, Any]:
            return {
                "shards": [str(path) for path in samples.shards],
                "files": str(samples.files),
                "batch": arguments.batch,
                "workers": arguments.workers,
                "seed": seed,
            }

        done = comparison.rounds(COMPARISON, arguments, options_of)
    said = f"batch {arguments.batch}, {arguments.samples} samples in {arguments.shards} shards"
    return comparison.finish(COMPARISON, arguments, about, done, said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# SPDX-License-Identifier: Apache-2.0
"""./dev bench python: what it costs to have a function of one's own called on each row.

Rows of 150 KB and of 512 bytes, with and without a stage `python` whose function gives back what it
was given; albumentations about as dear as Pillow's decoding, behind `decode_image` beside
PyTorch's DataLoader, whose workers call the same function on the same images; and torchvision's
ImageFolder with transforms as a source, for one job and for two, beside DataLoaders of it. CPU time
is that of all processes, those of the functions and the reading one too.
"""

from __future__ import annotations

import argparse
import io
import itertools
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rows"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import comparison
import generated
import numpy as np
import report
import rows_data
import user_functions
from daemon import REPOSITORY
from PIL import Image

# Rows of these bytes, and what a stage is to cost at most a row, in us of all processes.
ASKED = {150528: 60.0, 512: 5.0}
STAGES = ("1", "2", "4", "2-unkeyed")
TITLES = {size: f"rows of {size} B" for size in ASKED}
LOOKED_AT = 64  # images
COMPARISON = comparison.Comparison(
    name="python",
    about=__doc__,
    script=pathlib.Path(__file__).resolve().with_name("python_sides.py"),
    unit="row",
    names={
        "spdld": "spdld",
        "dataloader": "PyTorch DataLoader",
        "none": "no such stage",
        "1": "1 process",
        "2": "2 processes",
        "4": "4 processes",
        "2-unkeyed": "2 processes, a function without `rng`",
    },
    modules={
        **dict.fromkeys(("spdld", "dataloader"), ("albumentations",)),
        **dict.fromkeys(("none", *STAGES), ()),
    },
    packages=("torch", "numpy", "pillow", "albumentations"),
    tasks={
        "augment": comparison.Task(
            "albumentations", ("spdld", "dataloader"), asked={"dataloader": 1.6}
        ),
        "folder": comparison.Task("ImageFolder", ("spdld", "dataloader"), {"dataloader": 0.95}),
        "folders": comparison.Task(
            "ImageFolder, two jobs", ("spdld", "dataloader"), {"dataloader": 1.8}
        ),
        **{
            str(size): comparison.Task(title, ("none", *STAGES), asked={})
            for size, title in TITLES.items()
        },
    },
    light=True,
)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = comparison.parser_of(COMPARISON, warmup=2)
    parser.set_defaults(rounds=5, seconds=6)
    parser.add_argument("--data", help="a directory of JPEGs by class; default: some are made")
    return comparison.parsed(COMPARISON, parser, argv)


def make_images(directory: pathlib.Path) -> None:
    subprocess.run([REPOSITORY / "examples/demo/make_images.sh", directory, "64"], check=True)


def dearness(root: pathlib.Path) -> str:
    """What the augmentation takes, beside Pillow's decoding of the same images."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    rng = np.random.default_rng(1)
    decoding, augmenting = [], []
    user_functions.augment(np.zeros((224, 224, 3), np.uint8), rng)  # imports what it needs
    for path in files[:: max(1, len(files) // LOOKED_AT)]:
        data = io.BytesIO(path.read_bytes())
        begun = time.perf_counter()
        picture = Image.open(data).convert("RGB")
        decoding.append(time.perf_counter() - begun)
        pixels = np.asarray(picture.resize((224, 224), Image.Resampling.BILINEAR))
        begun = time.perf_counter()
        user_functions.augment(pixels, rng)
        augmenting.append(time.perf_counter() - begun)
    return (
        f"the augmentation takes {1000 * statistics.median(augmenting):.1f} ms,"
        f" and Pillow decodes such an image in {1000 * statistics.median(decoding):.1f}"
    )


def beyond(result: dict[str, Any], size: int, side: str, metric: str) -> list[float] | None:
    """Of `metric`, what it is more than without the stage: median, least and most of the rounds."""
    found = [
        one[f"{size}/{side}"][metric] - one[f"{size}/none"][metric]
        for one in result["rounds"]
        if f"{size}/{side}" in one and f"{size}/none" in one
    ]
    return [statistics.median(found), min(found), max(found)] if found else None


def costs(result: dict[str, Any]) -> tuple[str, list[str]]:
    """What a row costs with the stage beyond what it costs without: a table, and what is too much."""
    for figures in result["rounds"]:
        for one in figures.values():
            one["us_per_row"] = 1e6 / one["rows_per_s"]
    lines = [
        "What the stage costs a row beyond the same pipeline without it, in us:",
        "",
        "| rows | stage | time | CPU | asked for | the daemon's | the functions' processes' |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    missed = []
    for (size, asked), side in itertools.product(ASKED.items(), STAGES):
        time_us, cpu, daemon, functions = (
            beyond(result, size, side, f"{what}us_per_row")
            for what in ("", "all_", "daemon_", "functions_")
        )
        if not (time_us and cpu and daemon and functions):
            continue
        lines.append(
            f"| {size} B | {COMPARISON.names[side]} | {report.spread(time_us, 1)}"
            f" | {report.spread(cpu, 1)} | ≤ {asked:g} | {report.spread(daemon, 1)}"
            f" | {report.spread(functions, 1)} |"
        )
        if cpu[0] > asked:
            missed.append(
                f"{TITLES[size]}, {COMPARISON.names[side]}: {cpu[0]:.1f} us of CPU time, asked for"
                f" {asked:g}"
            )
    return "\n".join([*lines, ""]) if len(lines) > 4 else "", missed


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    images = (
        pathlib.Path(arguments.data).resolve()
        if arguments.data
        else generated.kept("images-64", make_images)
    )
    roots = {
        task: rows_data.make("tar", int(task)) if task.isdigit() else images
        for task in arguments.tasks
    }

    def options_of(task: str, side: str, seed: int) -> dict[str, Any]:
        return {
            "task": task,
            "data": str(roots[task]),
            "batch": 512 if task == "512" else 64,
            "workers": arguments.workers,
            "seed": seed,
        }

    said = "batch 512 of 512 B, else 64; " + dearness(images)
    return comparison.compare(COMPARISON, arguments, argv, roots, options_of, said, costs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

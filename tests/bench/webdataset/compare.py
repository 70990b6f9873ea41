# SPDX-License-Identifier: Apache-2.0
"""./dev bench webdataset: samples of tar shards by spdld beside the webdataset package, DALI and SPDL.

Sides take turns in rounds, each in a fresh process, so that a machine that changes its speed does
so for all of them. Figures are medians over the rounds; ratios are medians of each round's ratio.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "images"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import report
import run
import tar_shards
from daemon import REPOSITORY, build_dir

HERE = pathlib.Path(__file__).resolve().parent
NAMES = {
    "spdld": "spdld",
    "webdataset": "webdataset + PyTorch DataLoader",
    "dali": "DALI, CPU",
    "spdl": "SPDL",
    "spdld-files": "spdld, the images as plain files",
}
# What spdld's images/s are to be at least, as a multiple of another side's.
ASKED = {"webdataset": 2.4, "dali": 1.0, "spdl": 1.0, "spdld-files": 0.97}
MODULES = {"webdataset": "webdataset", "dali": "nvidia.dali", "spdl": "spdl"}
PACKAGES = ("torch", "torchvision", "webdataset", "nvidia-dali-cuda120", "spdl")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench webdataset", description=__doc__)
    parser.add_argument("--data", help="an ImageFolder of JPEGs; default: some are made")
    parser.add_argument("--samples", type=int, default=3000, help="the images, repeated")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="measured, per side and round")
    parser.add_argument("--warmup", type=float, default=4, help="before that")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sides", default=",".join(NAMES))
    parser.add_argument("--out", default=str(REPOSITORY / "build/bench/webdataset"))
    arguments = parser.parse_args(argv)
    arguments.sides = arguments.sides.split(",")
    for side in arguments.sides:
        if side not in NAMES:
            parser.error(f"there is no side '{side}': {', '.join(NAMES)}")
    return arguments


def is_missing(side: str) -> bool:
    """Whether the package that a side needs is not there: DALI has no wheel for every machine."""
    try:
        return side in MODULES and importlib.util.find_spec(MODULES[side]) is None
    except ModuleNotFoundError:
        return True


def measure(
    side: str, samples: tar_shards.Samples, seed: int, arguments: argparse.Namespace
) -> Any:
    options = {
        "shards": [str(path) for path in samples.shards],
        "files": str(samples.files),
        "batch": arguments.batch,
        "workers": arguments.workers,
        "seed": seed,
    }
    done = subprocess.run(
        [sys.executable, HERE / "tar_sides.py", side, json.dumps(options)]
        + [str(arguments.seconds), str(arguments.warmup)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(build_dir() / "python")},
    )
    return run.last_json(done, side)


def rounds(samples: tar_shards.Samples, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Of each round, the figures by `tar/SIDE`."""
    done = []
    for number in range(arguments.rounds):
        # Each round starts with another side: no one is always first after a pause.
        shift = number % len(arguments.sides)
        figures = {}
        for side in itertools.chain(arguments.sides[shift:], arguments.sides[:shift]):
            figures[side] = measure(side, samples, number, arguments)
            load = os.getloadavg()[0]
            print(f"round {number + 1} {side}: {figures[side]}, load {load:.1f}", file=sys.stderr)
        done.append({f"tar/{side}": figures[side] for side in arguments.sides})
    return done


def table(result: dict[str, Any]) -> str:
    options = result["about"]["options"]
    packages = ", ".join(
        f"{name} {version}" for name, version in result["about"]["packages"].items()
    )
    lines = [
        *report.heading(result),
        f"Median of {options['rounds']} rounds of {options['seconds']:g} s (least to most); batch"
        f" {options['batch']}, {options['workers']} workers, {options['samples']} samples in"
        f" {options['shards']} shards; {packages}.",
        "",
        "| loader | images/s | CPU ms per image | PSS MB | first batch ms"
        " | spdld / it: images/s | asked for | CPU | PSS |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for key, figures in result["summary"].items():
        side = key.removeprefix("tar/")
        asked = ASKED.get(side)
        ratios = [""] * 4
        if asked:
            speed, cpu, pss = (
                report.ratio(result, "tar", "spdld", side, metric)
                for metric in ("images_per_s", "cpu_ms_per_image", "pss_mb")
            )
            if speed and cpu and pss:
                ratios = [f"{speed:.2f}", f"≥ {asked:g}", f"{cpu:.2f}", f"{pss:.2f}"]
        lines.append(
            f"| {NAMES[side]} | {report.spread(figures['images_per_s'])}"
            f" | {report.spread(figures['cpu_ms_per_image'], 2)}"
            f" | {report.spread(figures['pss_mb'])} | {report.spread(figures['first_batch_ms'])}"
            f" | {' | '.join(ratios)} |"
        )
    return "\n".join([*lines, ""])


def missed(result: dict[str, Any]) -> list[str]:
    """What is asked for and was not reached."""
    found = []
    for side, asked in ASKED.items():
        ratio = report.ratio(result, "tar", "spdld", side, "images_per_s")
        if ratio is not None and ratio < asked:
            found.append(f"spdld / {NAMES[side]}: {ratio:.3f}, asked for {asked:g}")
    return found


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    for side in [side for side in arguments.sides if is_missing(side)]:
        print(f"{NAMES[side]} is not installed, and left out", file=sys.stderr)
        arguments.sides.remove(side)
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    about = {
        "command": "./dev bench webdataset " + " ".join(argv),
        "machine": run.machine(),
        "packages": versions(),
        "options": vars(arguments),
    }
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
        done = rounds(samples, arguments)
    result = {"about": about, "summary": run.summarize(done), "rounds": done}
    about["load_at_end"] = os.getloadavg()[0]
    (out / "webdataset.json").write_text(json.dumps(result, indent=2) + "\n")
    (out / "webdataset.md").write_text(table(result))
    print(table(result))
    print(f"written to {out}", file=sys.stderr)
    for line in missed(result):
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed(result) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

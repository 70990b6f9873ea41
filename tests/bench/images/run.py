# SPDX-License-Identifier: Apache-2.0
"""./dev bench images: image loading by spdld beside its peers and the floor below them all.

Sides take turns in rounds, each in a fresh process, so that a machine that changes its speed does
so for all of them. Figures are medians over the rounds; ratios are medians of each round's ratio.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import memory
import report
import sides
from daemon import build_dir
from machine import cpu

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
# (task, side); "floor" is libjpeg-turbo alone, with the task's own share of each image.
LOADING = [
    ("rrc", "spdld"),
    ("rrc", "pytorch"),
    ("rrc", "floor"),
    ("resize", "spdld"),
    ("resize", "pytorch"),
    ("resize", "spdl"),
    ("resize", "floor"),
]


def last_json(process: subprocess.CompletedProcess[str], what: str) -> dict[str, float]:
    if process.returncode != 0:
        sys.exit(f"{what} ended with {process.returncode}:\n{process.stderr}")
    return json.loads(process.stdout.strip().splitlines()[-1])


def measure(task: str, side: str, seed: int, arguments: argparse.Namespace) -> dict[str, float]:
    if side == "floor":
        command = [
            str(build_dir() / "bin/images_floor"),
            "region" if task == "rrc" else "full",
            arguments.data,
            str(arguments.seconds),
            str(arguments.workers),
            str(seed),
        ]
    else:
        options = sides.Options(task, arguments.data, arguments.batch, arguments.workers, seed)
        command = [
            sys.executable,
            str(HERE / "side.py"),
            side,
            json.dumps(vars(options)),
            "run",
            str(arguments.seconds),
            str(arguments.warmup),
        ]
    done = subprocess.run(command, capture_output=True, text=True)
    return last_json(done, f"{side} ({task})")


def warm_page_cache(data: str) -> int:
    files = [path for path in pathlib.Path(data).rglob("*") if path.is_file()]
    return sum(len(path.read_bytes()) for path in files)


def machine() -> dict[str, Any]:
    return {
        "cpu": cpu(),
        "cores": sides.cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0],
    }


def summarize(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, list[float]]]:
    """side -> metric -> [median, min, max]."""
    result: dict[str, dict[str, list[float]]] = {}
    for key in rounds[0]:
        result[key] = {}
        for metric in rounds[0][key]:
            values = [one[key][metric] for one in rounds]
            result[key][metric] = [statistics.median(values), min(values), max(values)]
    return result


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench images", description=__doc__)
    parser.add_argument("--data", help="an ImageFolder of JPEGs; default: some are made")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="measured, per side and round")
    parser.add_argument("--warmup", type=float, default=2, help="before that")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=sides.cores(), help="default: the cores")
    parser.add_argument("--sides", default="spdld,pytorch,spdl,floor")
    parser.add_argument("--tasks", default="rrc,resize")
    parser.add_argument("--ranks", type=int, help="measure memory with so many ranks instead")
    parser.add_argument("--out", default=str(REPOSITORY / "build/bench/images"))
    arguments = parser.parse_args(argv)
    arguments.sides = arguments.sides.split(",")
    arguments.tasks = arguments.tasks.split(",")
    return arguments


def run_loading(arguments: argparse.Namespace) -> dict[str, Any]:
    chosen = [
        (task, side)
        for task, side in LOADING
        if side in arguments.sides and task in arguments.tasks
    ]
    if not chosen:
        sys.exit("no side left: --sides of spdld,pytorch,spdl,floor; --tasks of rrc,resize")
    rounds = []
    for number in range(arguments.rounds):
        # Each round starts with another side: no one is always first after a pause.
        shift = number % len(chosen)
        figures = {}
        for task, side in itertools.chain(chosen[shift:], chosen[:shift]):
            key = f"{task}/{side}"
            figures[key] = measure(task, side, number, arguments)
            print(f"round {number + 1} {key}: {figures[key]}", file=sys.stderr, flush=True)
        rounds.append({f"{task}/{side}": figures[f"{task}/{side}"] for task, side in chosen})
    return {"summary": summarize(rounds), "rounds": rounds}


def main(argv: list[str]) -> None:
    arguments = parse(argv)
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spdld-bench-") as scratch:
        if arguments.data is None:
            arguments.data = scratch
            maker = REPOSITORY / "examples/demo/make_images.sh"
            subprocess.run([maker, scratch, "64"], check=True)
        arguments.data = str(pathlib.Path(arguments.data).resolve())
        about = {
            "command": "./dev bench images " + " ".join(argv),
            "machine": machine(),
            "data_mb": round(warm_page_cache(arguments.data) / 1e6),
            "options": vars(arguments),
        }
        if arguments.ranks:
            result = {"about": about, "memory": memory.measure(arguments)}
        else:
            result = {"about": about, **run_loading(arguments)}
    name = "memory" if arguments.ranks else "loading"
    (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    table = report.memory_table(result) if arguments.ranks else report.loading_table(result)
    (out / f"{name}.md").write_text(table)
    if not arguments.ranks:
        report.picture(result, out / "loading.svg")
    print(table)
    print(f"written to {out}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])

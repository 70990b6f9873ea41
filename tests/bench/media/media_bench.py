# SPDX-License-Identifier: Apache-2.0
"""./dev bench media: CPU time of decoding a JPEG by spdld, in each of its ways, and by libraries.

One thread each, files in memory, no disk and no loader around it. Each round runs every decoder
once, so that a machine that changes its speed does so for all of them; figures are medians over the
rounds, and ratios medians of each round's ratio to libjpeg-turbo's own loop.

A region is what torchvision's random_resized_crop draws. Libraries that decode whole images alone
pay for these whatever the region is.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import generated
import machine
import peer_loop
from daemon import REPOSITORY, build_dir

BARE = "libjpeg-turbo"
OURS = {
    "bare": f"{BARE}, its own crop and skip",
    "ours/libjpeg": "spdld by libjpeg-turbo (odd files)",
    "ours/first": "spdld, first sight",
    "ours/without_index": "spdld, no room for indexes",
    "ours/by_index": "spdld by its index",
    "ours/kept": "spdld from kept coefficients",
}
LIBRARIES = {
    "pillow": "Pillow",
    "torchvision": "torchvision.io",
    "simplejpeg": "simplejpeg",
    "pyturbojpeg": "PyTurboJPEG",
}


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench media", description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="a directory with JPEGs; not given: some that are drawn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of CPU, per decoder and round")
    return parser.parse_args(argv)


def jpegs_below(root: pathlib.Path) -> list[pathlib.Path]:
    found = sorted(path for path in root.rglob("*") if path.is_file())
    return [path for path in found if path.read_bytes()[:2] == b"\xff\xd8"]


def draw(directory: pathlib.Path) -> None:
    subprocess.run([REPOSITORY / "examples/demo/make_images.sh", directory, "96"], check=True)


def measure_ours(root: pathlib.Path, seconds: float) -> dict[tuple[str, str], float]:
    """CPU seconds of an image, by part (region or whole) and way."""
    done = subprocess.run(
        [
            build_dir() / "bin/spdld_media_bench",
            "--benchmark_filter=^(region|whole)_(bare|ours)",
            f"--benchmark_min_time={seconds}",
            "--benchmark_format=json",
        ],
        env={**os.environ, "SPDLD_BENCH_DATA": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    figures = {}
    for each in json.loads(done.stdout)["benchmarks"]:
        part, way = each["name"].split("_", 1)
        figures[part, way] = 1 / each["items_per_second"]
    return figures


def measure_library(name: str, files: pathlib.Path, seconds: float) -> float | str:
    """CPU seconds of an image, or why there is no figure."""
    done = subprocess.run(
        [sys.executable, peer_loop.__file__, name, str(files), str(seconds)],
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return float(done.stdout)
    return (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    root = pathlib.Path(arguments.data) if arguments.data else generated.kept("images96", draw)
    paths = jpegs_below(root)
    if not paths:
        print(f"./dev bench media: there are no JPEGs below {root}", file=sys.stderr)
        return 2
    out = build_dir().parent / "bench/media"
    out.mkdir(parents=True, exist_ok=True)
    files = out / "files.json"
    files.write_text(json.dumps([str(path) for path in paths]))
    figures: dict[tuple[str, str], list[float]] = {}
    missing: dict[str, str] = {}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        found = measure_ours(root, arguments.seconds)
        for name in LIBRARIES.keys() - missing.keys():
            took = measure_library(name, files, arguments.seconds)
            if isinstance(took, str):
                missing[name] = took
                continue
            found["whole", name] = found["region", name] = took
        for key, took in found.items():
            figures.setdefault(key, []).append(took)

    def cell(part: str, way: str) -> str:
        took = figures[part, way]
        ratios = [mine / bare for mine, bare in zip(took, figures[part, "bare"], strict=True)]
        return f"{1e3 * statistics.median(took):.3f} | {statistics.median(ratios):.2f}"

    size = statistics.mean(path.stat().st_size for path in paths)
    print(f"{len(paths)} JPEGs of {size / 1e3:.0f} kB, {arguments.rounds} rounds; {machine.line()}")
    print("| decoder | region, ms | of libjpeg-turbo | whole, ms | of libjpeg-turbo |")
    print("|---|---|---|---|---|")
    for way, name in {**OURS, **LIBRARIES}.items():
        if way in missing:
            print(f"| {name} | not measured: {missing[way]} | | | |")
        else:
            print(f"| {name} | {cell('region', way)} | {cell('whole', way)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

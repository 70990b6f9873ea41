# SPDX-License-Identifier: Apache-2.0
"""What loading adds to the memory of a node with several ranks, by proportional set size."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import processes
import sides

SAMPLES = 5
WORKERS_PER_RANK = 2


@contextlib.contextmanager
def enough_images(data: str, wanted: int) -> Iterator[str]:
    """The dataset, or a tree of links that repeats it until it holds `wanted` images."""
    root = pathlib.Path(data)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    if len(files) >= wanted:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="spdld-bench-") as scratch:
        for copy in range(-(-wanted // len(files))):
            for path in files:
                link = pathlib.Path(scratch) / path.parent.name / f"{copy}-{path.name}"
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(path)
        yield scratch


def start_rank(side: str, options: sides.Options) -> subprocess.Popen[str]:
    script = pathlib.Path(__file__).with_name("side.py")
    return subprocess.Popen(
        [sys.executable, str(script), side, json.dumps(vars(options)), "hold"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def pss_of_ranks(side: str, options: sides.Options, extra_pid: int | None) -> float:
    """Megabytes of all ranks, and of the daemon, while batches flow."""
    ranks = [
        start_rank(side, dataclasses.replace(options, rank=rank)) for rank in range(options.ranks)
    ]
    try:
        for rank in ranks:
            if rank.stdout.readline().strip() != "ready":
                raise RuntimeError(f"a rank of {side} ended early; what it printed is above")
        pids = [rank.pid for rank in ranks] + ([extra_pid] if extra_pid else [])
        samples = []
        for _ in range(SAMPLES):
            samples.append(sum(map(processes.pss_bytes, pids)) / 1e6)
            time.sleep(0.3)
        return statistics.median(samples)
    finally:
        for rank in ranks:
            rank.stdin.close()
        for rank in ranks:
            try:
                rank.wait(30)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Megabytes by what was running; "added" is what is beyond bare ranks with the same imports."""
    ranks = arguments.ranks
    with enough_images(arguments.data, ranks * arguments.batch * 4) as data:
        options = sides.Options("rrc", data, arguments.batch, arguments.workers, 0, ranks=ranks)
        daemon = sides.start_daemon(options)
        with daemon:
            total_spdld = pss_of_ranks(
                "spdld", dataclasses.replace(options, address=daemon.address), daemon.pid
            )
        bare_spdld = pss_of_ranks("bare", options, None)
        peers = dataclasses.replace(options, workers=WORKERS_PER_RANK)
        total_pytorch = pss_of_ranks("pytorch", peers, None)
        bare_pytorch = pss_of_ranks("bare-pytorch", peers, None)
    return {
        "ranks": ranks,
        "spdld_mb": total_spdld,
        "bare_spdld_mb": bare_spdld,
        "spdld_added_mb": total_spdld - bare_spdld,
        "pytorch_mb": total_pytorch,
        "bare_pytorch_mb": bare_pytorch,
        "pytorch_added_mb": total_pytorch - bare_pytorch,
    }

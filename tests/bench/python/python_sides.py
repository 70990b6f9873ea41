# SPDX-License-Identifier: Apache-2.0
"""The sides of ./dev bench python, each an endless iterator of batches.

python_sides.py NAME OPTIONS_JSON SECONDS WARMUP_SECONDS: one side in a process of its own; prints a line
of JSON. python_sides.py NAME OPTIONS_JSON look: what its first batches are.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rows"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import peer_side
import processes
import psutil
import rows_sides
import side
import system_calls
import user_functions

IMAGE = (224, 224, 3)
FOLDERS = {"folder": 1, "folders": 2}  # tasks of ImageFolder, and how many jobs read it
PIPELINE = "bench-python"
COUNTED_S = 5.0
_PR_SET_CHILD_SUBREAPER = 36
# The processes of a side by what their command lines hold.
PARTS = {"daemon": "bin/spdld", "functions": "spdld.runner"}


@dataclasses.dataclass(frozen=True)
class Options:
    task: str  # augment, one of FOLDERS, or rows of so many bytes
    data: str  # the directory of images, or of shards
    batch: int
    workers: int
    seed: int


def stage_of(function: str, in_out: str, declared: str, concurrency: int) -> dict[str, Any]:
    called = {"call": f"user_functions:{function}", "in": [in_out], "out": {in_out: declared}}
    return {"python": {**called, "concurrency": concurrency}}


def pipeline_spec(options: Options, name: str) -> dict[str, Any]:
    if options.task == "augment":
        declared = f"uint8[{','.join(map(str, IMAGE))}]"
        return {
            "pipeline": PIPELINE,
            "seed": options.seed,
            "source": {"files": {"root": options.data, "pattern": "**/*", "label": "parent_dir"}},
            "shuffle": "global",
            "stages": [
                *("fetch", "decode_image", {"resize": {"size": IMAGE[:2]}}),
                stage_of("augment", "image", declared, options.workers),
            ],
            "batch": {"size": options.batch, "last": "drop"},
        }
    if options.task in FOLDERS:
        return {
            "pipeline": PIPELINE,
            "seed": options.seed,
            "source": {
                "python": {
                    "call": f"{pathlib.Path(user_functions.__file__)}:train",
                    "args": {"root": options.data},
                    "fields": {"image": "float32[3,224,224]", "label": "int64"},
                    "concurrency": options.workers,
                }
            },
            "shuffle": "global",
            "stages": ["fetch"],
            "batch": {"size": options.batch, "last": "drop"},
        }
    size = int(options.task)
    rows = rows_sides.Options(
        "tar", size, options.data, options.batch, options.workers, options.seed
    )
    spec = {**rows_sides.pipeline_spec(rows, "spdld"), "pipeline": PIPELINE}
    if name != "none":
        count, _, unkeyed = name.partition("-")
        function = "same_unkeyed" if unkeyed else "same"
        spec["stages"] = [
            *spec["stages"],
            stage_of(function, "x", f"float32[{size // 4}]", int(count)),
        ]
    return spec


def own_descendants() -> None:
    """What starts in the background below this process stays its descendant, and so is counted."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER)")


def end_functions() -> None:
    """Those of a daemon that has ended look for its successor for a while."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def cpu_of_parts() -> dict[str, float]:
    spent = {"all": processes.cpu_seconds(os.getpid()), **dict.fromkeys(PARTS, 0.0)}
    for process in processes.tree(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            times = process.cpu_times()
            for part, text in PARTS.items():
                if text in command:
                    spent[part] += times.user + times.system
    return spent


def count(batches: peer_side.Batches, unit: str) -> dict[str, float]:
    """CPU time of a row of the next batches, by who spends it, and system calls."""
    rows, before = 0, cpu_of_parts()
    end = time.monotonic() + COUNTED_S
    while time.monotonic() < end:
        rows += side.touch(next(batches))
    after = cpu_of_parts()
    parts = {f"{part}_us_per_{unit}": 1e6 * (after[part] - before[part]) / rows for part in before}
    return {**parts, **system_calls.count(batches, unit)}


class Images:
    """A map-style dataset that decodes, resizes and augments as users' own code does."""

    def __init__(self, root: str) -> None:
        files = sorted(path for path in pathlib.Path(root).rglob("*") if path.is_file())
        classes = sorted({path.parent.name for path in files})
        self._items = [(path, classes.index(path.parent.name)) for path in files]
        self._rng: Any = None

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import numpy as np
        import torch
        from PIL import Image

        if self._rng is None:
            self._rng = np.random.default_rng(torch.initial_seed())
        path, label = self._items[row]
        picture = Image.open(path).convert("RGB").resize(IMAGE[:2], Image.Resampling.BILINEAR)
        pixels = user_functions.augment(np.asarray(picture), self._rng)
        return torch.from_numpy(pixels), label


def main(name: str, options_json: str, *words: str) -> None:
    options = Options(**json.loads(options_json))
    own_descendants()
    jobs = FOLDERS.get(options.task, 1)
    is_folder = options.task in FOLDERS
    if name != "dataloader":
        output = ("image", "label") if is_folder or options.task == "augment" else ("x",)
        spec = pipeline_spec(options, name)
        peer_side.run_spdld("row", spec, options.workers, output, words, count, jobs)
        end_functions()
        return

    def batches() -> peer_side.Batches:
        dataset = user_functions.train(options.data) if is_folder else Images(options.data)
        loaders = [
            peer_side.endless_dataloader(dataset, options.batch, options.workers, options.seed + n)
            for n in range(jobs)
        ]
        return peer_side.in_turn(loaders)

    peer_side.run_peer("row", peer_side.import_torch, batches, words)


if __name__ == "__main__":
    main(*sys.argv[1:])

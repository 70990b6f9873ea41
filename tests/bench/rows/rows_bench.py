# SPDX-License-Identifier: Apache-2.0
"""./dev bench rows: rows that cost next to nothing to decode, as text, embeddings and robot states do.

Arrays of float32 in tar shards, as files of their own or as values of a table, and windows of sound, by
spdld beside others, which read the same arrays in the form that is theirs; and below them all a loop of
preadv2() and memcpy(). CPU time is that of all processes, the reading one's too.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "audio"))
import audio_data
import comparison
import rows_data

SIZES = (64, 512, 4096, 65536)  # bytes of a row's float32
SIDES = {
    "tar": (
        *("spdld", "spdld-global", "webdataset", "litdata", "mds", "spdl"),
        *("floor-blocks", "floor"),
    ),
    "files": ("spdld", "dataloader", "floor"),
    "table": ("spdld",),
    "wav": ("spdld", "spdld-global", "floor-blocks", "floor"),
}
TITLES = {"tar": "tar shards", "files": "files", "table": "values of a table"}
COMPARISON = comparison.Comparison(
    name="rows",
    about=__doc__,
    script=pathlib.Path(__file__).resolve().with_name("rows_sides.py"),
    unit="row",
    names={
        "spdld": "spdld",
        "spdld-global": "spdld, global order",
        "webdataset": "webdataset + PyTorch DataLoader",
        "litdata": "LitData",
        "mds": "MosaicML Streaming + PyTorch DataLoader",
        "spdl": "SPDL",
        "dataloader": "PyTorch DataLoader",
        "floor-blocks": "preadv2 of 256 KiB and memcpy",
        "floor": "preadv2 and memcpy of each row",
    },
    modules={
        "spdld": (),
        "spdld-global": (),
        "webdataset": ("webdataset",),
        "litdata": ("litdata",),
        "mds": ("streaming",),
        "spdl": ("spdl",),
        "dataloader": (),
        "floor-blocks": (),
        "floor": (),
    },
    packages=("torch", "webdataset", "litdata", "mosaicml-streaming", "spdl"),
    tasks={
        **{
            f"{kind}-{size}": comparison.Task(f"{title}, {size} B", SIDES[kind], asked={})
            for kind, title in TITLES.items()
            for size in SIZES
            if kind != "table" or size <= 4096  # the daemon has a table's values in memory
        },
        "wav": comparison.Task("wav, 10 ms", SIDES["wav"], asked={}),
    },
    floors=frozenset({"floor", "floor-blocks"}),
    light=True,
)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = comparison.parser_of(COMPARISON, warmup=2)
    parser.set_defaults(rounds=3, seconds=4)
    parser.add_argument("--batch", type=int, default=512)
    return comparison.parsed(COMPARISON, parser, argv)


def kind_and_size(task: str) -> tuple[str, int]:
    kind, _, size = task.partition("-")
    return kind, int(size) if size else 640


def directory_of(task: str, side: str) -> pathlib.Path:
    """Where the task's rows lie in the form that this side reads."""
    kind, size = kind_and_size(task)
    if kind == "wav":
        return audio_data.make("wav")
    return rows_data.make(side if side in rows_data.WRITERS else kind, size)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    comparison.leave_out_missing(COMPARISON, arguments)
    roots = {
        f"{task}/{side}": directory_of(task, side)
        for task, side in comparison.chosen(COMPARISON, arguments)
    }

    def options_of(task: str, side: str, seed: int) -> dict[str, Any]:
        kind, size = kind_and_size(task)
        return {
            "kind": kind,
            "size": size,
            "data": str(roots[f"{task}/{side}"]),
            "batch": arguments.batch,
            "workers": arguments.workers,
            "seed": seed,
        }

    said = (
        f"{rows_data.MOST_ROWS} rows, or as many as are {rows_data.MOST_BYTES >> 20} MiB,"
        f" batch {arguments.batch}"
    )
    return comparison.compare(COMPARISON, arguments, argv, roots, options_of, said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

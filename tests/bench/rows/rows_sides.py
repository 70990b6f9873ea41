# SPDX-License-Identifier: Apache-2.0
"""The loaders of light rows that are compared, each an endless iterator of batches of float32.

All but the floors do the same: rows at random, or nearly so, in batches as tensors, each in the way that
its own documentation has it, with as many workers as it is given. Imports are inside: each side pays
for its own alone.

rows_sides.py NAME OPTIONS_JSON SECONDS WARMUP_SECONDS: one side in a process of its own; prints a line
of JSON. rows_sides.py NAME OPTIONS_JSON look: what its first batches are.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import peer_side
import rows_data
import system_calls

SHUFFLED = 8192  # rows in the buffers of those that shuffle by one
PIPELINE = "bench-rows"
BLOCK_READ = 1 << 18  # bytes, as the daemon reads blocks of small rows
WAV_HEADER, WAV_ROW = 78, 320  # as ffmpeg writes it; 10 ms of 16 bits at 16 kHz


@dataclasses.dataclass(frozen=True)
class Options:
    kind: str  # tar, files, table or wav
    size: int  # bytes of a row's float32
    data: str  # the directory of what this side reads
    batch: int
    workers: int
    seed: int

    @property
    def floats(self) -> int:
        return self.size // 4

    @property
    def files(self) -> list[str]:
        return sorted(str(path) for path in pathlib.Path(self.data).iterdir())


def import_webdataset() -> None:
    peer_side.import_torch()
    import webdataset  # noqa: F401


def endless(loader: Any) -> peer_side.Batches:
    while True:
        yield from loader


def open_webdataset(options: Options) -> peer_side.Batches:
    import torch
    import webdataset

    dataset = webdataset.WebDataset(options.files, shardshuffle=100, seed=options.seed)
    dataset = dataset.repeat().shuffle(SHUFFLED).decode().to_tuple("npy").batched(options.batch)
    yield from torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=options.workers)


def import_litdata() -> None:
    peer_side.import_torch()
    import litdata  # noqa: F401


def open_litdata(options: Options) -> peer_side.Batches:
    import litdata

    dataset = litdata.StreamingDataset(options.data, shuffle=True, seed=options.seed)
    loader = litdata.StreamingDataLoader(
        dataset,
        batch_size=options.batch,
        num_workers=options.workers,
        drop_last=True,
        persistent_workers=True,
    )
    for batch in endless(loader):
        yield (batch["x"],)


def import_mds() -> None:
    peer_side.import_torch()
    import streaming  # noqa: F401


def open_mds(options: Options) -> peer_side.Batches:
    import streaming
    import torch

    dataset = streaming.StreamingDataset(
        local=options.data, shuffle=True, shuffle_seed=options.seed, batch_size=options.batch
    )
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=options.batch,
        num_workers=options.workers,
        drop_last=True,
        persistent_workers=True,
    )
    for batch in endless(loader):
        yield (batch["x"],)


def import_spdl() -> None:
    peer_side.import_torch()
    import spdl.io
    import spdl.pipeline  # noqa: F401


def open_spdl(options: Options) -> peer_side.Batches:
    """SPDL: its tar parser, its parser of arrays, its pipeline of threads."""
    import numpy as np
    import spdl.io
    import torch

    def source() -> Iterator[bytes]:
        order = random.Random(options.seed)
        shards = options.files
        buffer: list[bytes] = []
        while True:
            order.shuffle(shards)
            for path in shards:
                for _, content in spdl.io.iter_tarfile(pathlib.Path(path).read_bytes()):
                    buffer.append(bytes(content))
                    if len(buffer) >= SHUFFLED:
                        pick = order.randrange(len(buffer))
                        buffer[pick], buffer[-1] = buffer[-1], buffer[pick]
                        yield buffer.pop()

    def decode(rows: list[bytes]) -> tuple[Any, ...]:
        return (torch.from_numpy(np.stack([spdl.io.load_npy(row) for row in rows])),)

    def stages(builder: Any) -> Any:
        return builder.aggregate(options.batch).pipe(decode, concurrency=options.workers)

    return peer_side.spdl_pipeline(source(), options.workers, stages)


class Arrays:
    """A map-style dataset of .npy files."""

    def __init__(self, files: list[str]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, row: int) -> tuple[Any]:
        import numpy as np

        return (np.load(self._files[row]),)


def open_dataloader(options: Options) -> peer_side.Batches:
    return peer_side.endless_dataloader(
        Arrays(options.files), options.batch, options.workers, options.seed
    )


def source_of(options: Options) -> dict[str, Any]:
    match options.kind:
        case "tar":
            return {"webdataset": {"shards": options.files, "fields": {"x": "npy"}}}
        case "files":
            return {"files": {"root": options.data, "pattern": "*.npy", "field": "x"}}
        case "table":
            values = {"x": {"column": "x", "type": "float64_list"}}
            table = {"file": options.files[0], "uri": {"none": "file"}, "values": values}
            return {"table": {**table, "optional": ["none"]}}
    files = {"root": options.data, "pattern": "*.wav", "field": "x"}
    return {"files": files, "windows": {"seconds": 0.01}}


def stages_of(options: Options) -> list[Any]:
    match options.kind:
        case "table":
            return ["fetch"]
        case "wav":
            return ["fetch", {"decode_audio": {"field": "x"}}]
    return [
        "fetch",
        {"decode_npy": {"field": "x", "shape": [options.floats], "dtype": "float32"}},
    ]


def shuffle_of(options: Options, name: str) -> Any:
    if name == "spdld-global" or options.kind in ("files", "table"):
        return "global"
    return {"block": 512, "interleave": 16}  # what it is for shards when nothing is said


def pipeline_spec(options: Options, name: str) -> dict[str, Any]:
    batch: dict[str, Any] = {"size": options.batch, "last": "drop"}
    if options.kind == "table":
        batch["collate"] = {"x": "stack", "none": {"max_bytes": 1}}
    return {
        "pipeline": PIPELINE,
        "seed": options.seed,
        "source": source_of(options),
        "shuffle": shuffle_of(options, name),
        "stages": stages_of(options),
        "batch": batch,
    }


def write_light(daemon: Any) -> pathlib.Path:
    """Of other benchmarks: the pipeline PIPELINE, of rows of 512 bytes in tar shards."""
    directory = str(rows_data.make("tar", 512))
    options = Options("tar", 512, directory, batch=512, workers=1, seed=1)
    file = daemon.directory / f"{PIPELINE}.yaml"
    file.write_text(json.dumps(pipeline_spec(options, "spdld")))
    return file


# By name: what its trainer would have loaded anyway, and the loader; from there the clock runs.
PEERS: dict[str, peer_side.Peer] = {
    "webdataset": (import_webdataset, open_webdataset),
    "litdata": (import_litdata, open_litdata),
    "mds": (import_mds, open_mds),
    "spdl": (import_spdl, open_spdl),
    "dataloader": (peer_side.import_torch, open_dataloader),
}


def run_floor(options: Options, seconds: str, *, in_blocks: bool) -> None:
    """A loop of preadv2() and memcpy() of the same rows: rows/floor.cpp."""
    build = os.environ.get("SPDLD_BUILD_DIR", "build/release")
    program = pathlib.Path(__file__).resolve().parents[3] / build / "bin/rows_floor"
    match options.kind:
        case "tar":
            header = rows_data.TAR_BLOCK + rows_data.NPY_HEADER
            layout = (options.size, header, rows_data.tar_stride(options.size))
        case "files":
            layout = (options.size, rows_data.NPY_HEADER, 0)
        case _:
            layout = (WAV_ROW, WAV_HEADER, WAV_ROW)
    rows_a_read = max(1, BLOCK_READ // layout[2]) if in_blocks else 1
    numbers = (seconds, options.workers, options.seed, options.batch, *layout, rows_a_read)
    command = [program, options.data, *map(str, numbers)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    most_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    calls = (3 if options.kind == "files" else 1) / rows_a_read
    found = {**json.loads(done.stdout), "pss_mb": most_mb, "first_batch_ms": 0.0}
    print(json.dumps({**found, system_calls.key("row"): calls}))


def main(name: str, options_json: str, *words: str) -> None:
    options = Options(**json.loads(options_json))
    if name.startswith("floor"):
        run_floor(options, words[0], in_blocks=name == "floor-blocks")
    elif name.startswith("spdld"):
        spec = pipeline_spec(options, name)
        peer_side.run_spdld("row", spec, options.workers, ("x",), words, system_calls.count)
    else:
        import_side, open_side = PEERS[name]
        peer_side.run_peer(
            "row", import_side, lambda: open_side(options), words, system_calls.count
        )


if __name__ == "__main__":
    main(*sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""./dev bench rows: rows that cost next to nothing to decode, as text, embeddings and robot states do.

Arrays of float32 in a tar shard or as files of their own, read by one rank that looks at nothing: what
making and handing out a row costs the daemon. `webdataset` under a DataLoader reads the same shard with
one worker, as a shard is the least that it divides. Sides take turns; figures are medians of the
rounds. System calls are counted by perf, where it may look.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import machine
import numpy as np
from daemon import Daemon

BATCH = 512
ARRAY_HEADER = 128  # of an .npy of one axis


@dataclasses.dataclass(frozen=True)
class Rows:
    """So many rows, each of so many bytes as an .npy file."""

    count: int
    size: int

    @property
    def floats(self) -> int:
        return (self.size - ARRAY_HEADER) // 4

    def array(self, row: int) -> bytes:
        out = io.BytesIO()
        np.save(out, np.full(self.floats, row, np.float32))
        return out.getvalue()


def write_tar(directory: pathlib.Path, rows: Rows) -> None:
    with tarfile.open(directory / "rows.tar", "w", format=tarfile.USTAR_FORMAT) as shard:
        for row in range(rows.count):
            info = tarfile.TarInfo(f"{row:08}.npy")
            data = rows.array(row)
            info.size = len(data)
            shard.addfile(info, io.BytesIO(data))


def write_files(directory: pathlib.Path, rows: Rows) -> None:
    (directory / "rows").mkdir()
    for row in range(rows.count):
        (directory / f"rows/{row:08}.npy").write_bytes(rows.array(row))


def source(kind: str, directory: pathlib.Path) -> dict[str, Any]:
    if kind == "tar":
        return {"webdataset": {"shards": str(directory / "rows.tar"), "fields": {"x": "npy"}}}
    return {"files": {"root": str(directory / "rows"), "pattern": "*.npy", "field": "x"}}


def pipeline(kind: str, shuffle: str, rows: Rows, directory: pathlib.Path) -> dict[str, Any]:
    decode = {"decode_npy": {"field": "x", "shape": [rows.floats], "dtype": "float32"}}
    written = {"pipeline": "rows", "source": source(kind, directory), "stages": ["fetch", decode]}
    if shuffle == "block" and kind != "tar":
        written["shuffle"] = {"block": 512}
    elif shuffle == "global":
        written["shuffle"] = "global"
    return {**written, "batch": {"size": BATCH}}


@dataclasses.dataclass(frozen=True)
class Figures:
    rows_per_s: float
    cpu_us: float
    calls: float | None


def spdld(kind: str, shuffle: str, rows: Rows, directory: pathlib.Path, args: Any) -> Figures:
    daemon = Daemon(settings={"executor": {"cpu_threads": args.threads}}, programs=args.programs)
    try:
        daemon.start()
        file = daemon.directory / "rows.yaml"
        file.write_text(json.dumps(pipeline(kind, shuffle, rows, directory)))
        daemon.ctl("apply", "-f", file)
        daemon.ctl("consume", "rows", "--no-read")  # the page cache has all
        out = daemon.directory / "perf"
        count = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o", out]
        perf = (
            subprocess.Popen([*count, "-p", str(daemon.pid)], stderr=subprocess.DEVNULL)
            if shutil.which("perf")
            else None
        )
        cpu, begun = machine.cpu_s(daemon.pid), time.monotonic()
        daemon.ctl("consume", "rows", "--epochs", str(args.epochs), "--no-read")
        took, cpu = time.monotonic() - begun, machine.cpu_s(daemon.pid) - cpu
        if perf is not None:
            perf.send_signal(signal.SIGINT)
            perf.wait()
        made = args.epochs * rows.count
        return Figures(made / took, cpu / made * 1e6, calls_in(out, made))
    finally:
        daemon.close()


def calls_in(out: pathlib.Path, rows: int) -> float | None:
    lines = out.read_text().splitlines() if out.exists() else []
    counts = [line.split(",")[0] for line in lines if "sys_enter" in line]
    return int(counts[0]) / rows if counts and counts[0].isdigit() else None


PEER = """
import sys, time, torch, webdataset
shards, workers, epochs, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
rows = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False).shuffle(8192).decode()
rows = rows.to_tuple("npy").batched(batch)
loader = torch.utils.data.DataLoader(rows, batch_size=None, num_workers=workers)
begun, seen = time.monotonic(), 0
for _ in range(epochs):
    for (x,) in loader:
        seen += len(x)
print(seen / (time.monotonic() - begun))
"""


def webdataset(directory: pathlib.Path, args: Any) -> float | None:
    """Rows a second; one shard has one worker. None: it is not installed."""
    command = [sys.executable, "-c", PEER, str(directory / "rows.tar"), "1", "1", str(BATCH)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 and "ModuleNotFoundError" in done.stderr:
        return None
    done.check_returncode()
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--sizes", default="192,512,4096,65536", help="bytes of a row")
    parser.add_argument("--kinds", default="tar,files")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", type=pathlib.Path, help="of another build, to compare with")
    args = parser.parse_args()
    print(machine.line())
    write = {"tar": write_tar, "files": write_files}
    for size in map(int, args.sizes.split(",")):
        rows = Rows(min(args.rows, (1 << 30) // size), size)
        for kind in args.kinds.split(","):
            with tempfile.TemporaryDirectory(prefix="rows-") as made:
                directory = pathlib.Path(made)
                write[kind](directory, rows)
                shuffles = ("block", "global")
                measured: dict[str, list[Figures]] = {shuffle: [] for shuffle in shuffles}
                peer: list[float] = []
                for _ in range(args.rounds):
                    for shuffle in shuffles:
                        measured[shuffle].append(spdld(kind, shuffle, rows, directory, args))
                    if kind == "tar" and (figure := webdataset(directory, args)):
                        peer.append(figure)
                for shuffle, figures in measured.items():
                    tell(f"{size} B, {kind}, {shuffle}", figures)
                if peer:
                    print(
                        f"{size} B, tar, webdataset, 1 worker: {statistics.median(peer):,.0f} rows/s"
                    )


def tell(what: str, figures: list[Figures]) -> None:
    rate = statistics.median(each.rows_per_s for each in figures)
    cpu = statistics.median(each.cpu_us for each in figures)
    calls = [each.calls for each in figures if each.calls is not None]
    counted = f", {statistics.median(calls):.3f} system calls" if calls else ""
    print(f"{what}: {rate:,.0f} rows/s, {cpu:.2f} us of CPU a row{counted}", flush=True)


if __name__ == "__main__":
    main()

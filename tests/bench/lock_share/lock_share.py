# SPDX-License-Identifier: Apache-2.0
"""tests/bench/lock_share/lock_share.py: how much of the daemon's work is done under locks.

By instructions, which valgrind's callgrind counts: all that the daemon executes for a row, with one
worker; what it executes while it holds the executor's lock, which all workers share; and what it
executes while it holds any. From each share follows by Amdahl's law how many workers can be busy at
most. A model, not a measurement: it knows of no waiting for the lock, no cache lines that move between
cores, and no memory bandwidth; and it takes all locks for one.

Data: `rows` are those of ./dev bench rows in tar shards, of 512 bytes; or a directory of images by class.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rows"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import daemon
import pipelines
import rows_sides

HERE = pathlib.Path(__file__).resolve().parent
IMAGES_A_BATCH = 64
CORES = (2, 16, 64)
PROGRAM = """\
#!/bin/sh
exec valgrind --tool=callgrind --callgrind-out-file={out} --collect-atstart={at_start} \
  {programs}/spdld "$@"
"""


@contextlib.contextmanager
def daemon_under_callgrind(
    arguments: argparse.Namespace, *, locked: str | None
) -> Iterator[tuple[daemon.Daemon, pathlib.Path]]:
    """Started, and the file that callgrind writes beside, with numbers behind its name."""
    with tempfile.TemporaryDirectory(prefix="lock-share-") as scratch:
        programs = pathlib.Path(scratch)
        library = programs / "preload.so"
        source = HERE / "preload.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        text = PROGRAM.format(
            out=programs / "out",
            at_start="no" if locked else "yes",
            programs=arguments.programs.resolve(),
        )
        (programs / "spdld").write_text(text)
        (programs / "spdld").chmod(0o755)
        (programs / "spdlctl").symlink_to(daemon.build_dir() / "bin/spdlctl")
        environment = {"LD_PRELOAD": str(library), "SLOW_CLOCK": str(arguments.slow_clock)}
        if locked:
            environment["LOCKED"] = locked
        with daemon.Daemon(
            settings={"executor": {"cpu_threads": 1}}, environment=environment, programs=programs
        ) as one:
            yield one.start(), programs / "out"


def write_pipeline(one: daemon.Daemon, data: str) -> tuple[str, pathlib.Path]:
    """Its name, and the file that it stands in."""
    if data == "rows":
        return rows_sides.PIPELINE, rows_sides.write_light(one)
    root = pathlib.Path(data).resolve()
    return "bench", pipelines.write_training(one, root, IMAGES_A_BATCH, "replace")


def calls_of(text: str, function: str) -> int:
    """How often callgrind has seen it called."""
    numbers = set(re.findall(rf"^c?fn=\((\d+)\) {re.escape(function)}\(", text, re.MULTILINE))
    called = re.findall(r"^cfn=\((\d+)\).*\ncalls=(\d+)", text, re.MULTILINE)
    return sum(int(calls) for number, calls in called if number in numbers)


def measure(arguments: argparse.Namespace, *, locked: str | None) -> tuple[float, float]:
    """Instructions of a row, and rows of a claim."""
    with daemon_under_callgrind(arguments, locked=locked) as (one, out):
        name, file = write_pipeline(one, arguments.data)
        one.ctl("apply", "-f", file)
        consume = ("consume", name, "--no-read", "--epochs")
        one.ctl(*consume, "1")  # all is in memory that will be
        subprocess.run(["callgrind_control", "--zero", str(one.pid)], check=True)
        said = one.ctl(*consume, str(arguments.epochs)).stdout
        subprocess.run(["callgrind_control", "--dump", str(one.pid)], check=True)
        text = out.with_name("out.1").read_text()
    found = re.search(r"(\d+) rows", said)
    assert found is not None, said
    rows = int(found.group(1))
    total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
    assert total is not None
    claims = calls_of(text, "spdld::engine::Executor::process")
    return int(total.group(1)) / rows, rows / claims if claims else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="rows, or a directory of images by class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--slow-clock", type=int, default=60, help="how much callgrind slows it")
    parser.add_argument(
        "--programs", type=pathlib.Path, default=daemon.build_dir() / "bin", help="the daemon's"
    )
    arguments = parser.parse_args()
    os.environ.pop("LD_PRELOAD", None)
    daemon.WATCHDOG_S = 500.0
    whole, rows_a_claim = measure(arguments, locked=None)
    print(f"{whole:,.0f} instructions a row, {rows_a_claim:.1f} rows a claim")
    for locked, name in (("executor", "the executor's lock"), ("any", "any lock")):
        under, _ = measure(arguments, locked=locked)
        share = under / whole
        bounds = ", ".join(f"{n} cores: {1 / (share + (1 - share) / n):.1f}" for n in CORES)
        print(
            f"{under:,.0f} instructions ({100 * share:.2f} %) under {name};"
            f" at most as fast as one core times, {bounds}",
            flush=True,
        )


if __name__ == "__main__":
    main()

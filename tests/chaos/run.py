# SPDX-License-Identifier: Apache-2.0
"""A chaos run: real ranks read from a real daemon while both are killed, stopped and started again.

    tests/chaos/run.py --seed 1 --kills 500 --seconds 700

What befalls whom follows from the seed alone; at which point of the protocol it strikes does not.
In the end every rank's own record must tell of each item of each epoch exactly once, and the daemon
must have given back all that it took. Exit codes: 0 all held, 1 something did not; then the records
and logs are kept, and a command that does the same again is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shlex
import shutil
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import daemon as daemon_module
import kinds
import on_gpu
from chaos import ledger
from chaos.ordeal import Ordeal, PromiseError


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--kills", type=int, default=20, help="kill -9 of the daemon")
    parser.add_argument(
        "--terms", type=int, default=None, help="SIGTERM; default: a fifth of kills"
    )
    parser.add_argument("--freezes", type=int, default=None, help="of the daemon, and of ranks")
    parser.add_argument(
        "--consumer-kills", type=int, default=None, help="default: as many as kills"
    )
    parser.add_argument(
        "--code",
        action="store_true",
        help="rows go through a function of the user's, a filter and repeat; its processes are "
        "killed as often as the daemon is",
    )
    parser.add_argument("--swaps", type=int, default=0, help="of a job's pipeline by spdlctl apply")
    parser.add_argument(
        "--failpoints", action="store_true", help="let it die inside, too: needs SPDLD_FAILPOINTS"
    )
    parser.add_argument("--seconds", type=float, default=None, help="default: 1.3 a daemon's end")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=4, help="of each job")
    parser.add_argument("--items", type=int, default=317, help="images in the dataset")
    parser.add_argument(
        "--kind", default=str(kinds.PLAIN), help="of source and rows: tests/kinds.py"
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cpu",
        help="cuda: the fake GPU of tests/fake_cuda",
    )
    parser.add_argument("--work-ms", type=float, default=20.0, help="of a rank for each batch")
    parser.add_argument("--keep", type=pathlib.Path, default=None, help="leave all records here")
    options = parser.parse_args(arguments)
    if options.kind not in map(str, kinds.ALL):
        parser.error(f"no kind '{options.kind}': {', '.join(map(str, kinds.ALL))}")
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), "little")
    if options.terms is None:
        options.terms = options.kills // 5
    if options.freezes is None:
        options.freezes = options.kills // 5
    if options.consumer_kills is None:
        options.consumer_kills = options.kills
    options.runner_kills = options.kills if options.code else 0
    if options.seconds is None:
        blows = max(options.kills + options.terms, options.consumer_kills // 2, options.swaps)
        options.seconds = 1.3 * max(blows, 1)
    return options


def replay(options: argparse.Namespace) -> str:
    words = [sys.executable, str(pathlib.Path(__file__).resolve())]
    for name, value in vars(options).items():
        if name in ("keep", "runner_kills") or value is False:
            continue
        words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    return f"SPDLD_BUILD_DIR={shlex.quote(str(daemon_module.build_dir()))} {shlex.join(words)}"


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.keep:
        options.keep.mkdir(parents=True)
    directory = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="spdld-chaos-", dir="/tmp"))
    with contextlib.ExitStack() as given_back:
        if options.device == "cuda":
            given_back.enter_context(on_gpu.environment(directory / "gpu-ledger", options.seed))
        return run(options, directory)


def run(options: argparse.Namespace, directory: pathlib.Path) -> int:
    started = time.monotonic()
    ordeal = Ordeal(options, directory)
    failure = ""
    try:
        ordeal.run()
    except PromiseError as failed:
        failure = str(failed)
    except Exception as error:
        failure = "".join(traceback.format_exception(error))
    finally:
        ordeal.close()
    batches = sum(len(ledger.read(rank.log)) for ranks in ordeal.ranks for rank in ranks)
    suffered = ", ".join(
        f"{count} {blow.value}" for blow, count in sorted(ordeal.done.items(), key=str)
    )
    print(
        f"seed {options.seed}: {batches} batches in {ordeal.epochs} epochs, "
        f"{time.monotonic() - started:.0f} s; {suffered}"
        + (f"; {ordeal.died_at_a_failpoint} deaths at failpoints" if options.failpoints else "")
    )
    if failure:
        print(f"FAILED: {failure}\nrecords and logs: {directory}\nagain: {replay(options)}")
        return 1
    if not options.keep:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

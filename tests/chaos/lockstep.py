# SPDX-License-Identifier: Apache-2.0
"""Ranks in lockstep: those of one job take every step together while things are done to the job.

    tests/chaos/lockstep.py --seed 1 --steps 300
    tests/chaos/lockstep.py --seeds 40
    tests/chaos/lockstep.py --apart --seeds 40

All must be given the same epoch, step and version each time, the rows of it once, and an epoch's
end together: an all-reduce in the loop would wait for ever otherwise. World, prefetch and batch
follow from the seed, and so does what is done before which step; how far the daemon is ahead by then
does not. Exit codes: 0 all held, 1 something did not; then what was done is printed, and a command
that does the same again. `--only` leaves all but these operations out, `--shrink` looks for the few
that it takes. With `--apart` the ranks of every other world go each at its own pace, up to epochs
apart, in rounds instead of steps, and the job is resized, too: see chaos/apart.py.
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import daemon as daemon_module
from chaos import operations
from chaos.apart import Apart
from chaos.march import FindingError, March
from chaos.operations import Kind, Operation


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument(
        "--seeds", type=int, default=1, help="so many runs, of seeds from --seed on"
    )
    parser.add_argument("--steps", type=int, default=300, help="of each run")
    parser.add_argument(
        "--only", default=None, help="numbers of operations: all others are left out"
    )
    parser.add_argument(
        "--without",
        choices=[kind.name.lower() for kind in Kind],
        action="append",
        default=[],
        help="leave out operations of this kind; repeatable",
    )
    parser.add_argument("--apart", action="store_true", help="ranks at paces of their own")
    parser.add_argument("--shrink", action="store_true", help="of what fails: look for less")
    parser.add_argument("--keep", type=pathlib.Path, default=None, help="leave texts and logs here")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), "little")
    return options


def all_drawn(seed: int, steps: int, apart: bool) -> list[Operation]:
    percent = operations.PERCENT_APART if apart else operations.PERCENT
    return operations.draw(seed, steps, percent)


def drawn(options: argparse.Namespace, seed: int) -> list[Operation]:
    found = [
        operation
        for operation in all_drawn(seed, options.steps, options.apart)
        if operation.kind.name.lower() not in options.without
    ]
    if options.only is None:
        return found
    chosen = {int(number) for number in options.only.split(",") if number}
    return [operation for operation in found if operation.number in chosen]


class Run:
    """One seed's, from start to end."""

    def __init__(
        self,
        seed: int,
        steps: int,
        todo: list[Operation],
        keep: pathlib.Path | None,
        apart: bool = False,
    ) -> None:
        self.seed = seed
        self.apart = apart
        self._wanted = steps
        self.todo = todo
        directory = keep or pathlib.Path(tempfile.mkdtemp(prefix="spdld-lockstep-", dir="/tmp"))
        self.world = operations.draw_world(seed)
        march = (Apart if apart else March)(self.world, directory)
        try:
            self.failure = self._failure(march)
            self.scene = march.scene() if self.failure else ""
        finally:
            march.close()
        if keep is None:
            shutil.rmtree(directory)
        self.story = march.story
        self.steps = march.steps
        self.accepted = collections.Counter(march.accepted)

    def _failure(self, march: March | Apart) -> str:
        try:
            march.run(self.todo, self._wanted)
        except FindingError as found:
            return str(found)
        except Exception as error:
            return "".join(traceback.format_exception(error))
        return ""

    def again(self) -> str:
        words = [sys.executable, str(pathlib.Path(__file__).resolve())]
        words += ["--seed", str(self.seed), "--steps", str(self._wanted)]
        words += ["--apart"] * self.apart
        if len(self.todo) < len(all_drawn(self.seed, self._wanted, self.apart)):
            words += ["--only", ",".join(str(operation.number) for operation in self.todo)]
        build = shlex.quote(str(daemon_module.build_dir()))
        return f"SPDLD_BUILD_DIR={build} {shlex.join(words)}"

    def report(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}: FAILED: {self.world}",
                *self.story,
                self.failure,
                self.scene,
                f"again: {self.again()}",
            ]
        )


def shrunk(failed: Run) -> Run:
    """With as few operations as it can be found to fail with, one left out at a time."""
    todo, steps = [one for one in failed.todo if one.before <= failed.steps], failed.steps + 1
    for operation in reversed(todo.copy()):
        fewer = [one for one in todo if one is not operation]
        tried = Run(failed.seed, steps, fewer, None, failed.apart)
        if tried.failure:
            failed, todo = tried, fewer
    return failed


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    started = time.monotonic()
    failed, steps = 0, 0
    accepted: collections.Counter[Kind] = collections.Counter()
    for seed in range(options.seed, options.seed + options.seeds):
        keep = options.keep / str(seed) if options.keep else None
        run = Run(seed, options.steps, drawn(options, seed), keep, options.apart)
        steps += run.steps
        accepted += run.accepted
        if run.failure:
            failed += 1
            print((shrunk(run) if options.shrink else run).report(), flush=True)
    done = ", ".join(f"{count} {kind.value}" for kind, count in sorted(accepted.items(), key=str))
    print(
        f"seeds {options.seed} to {options.seed + options.seeds - 1}: "
        f"{steps} {'rounds' if options.apart else 'steps of all ranks'}, "
        f"{time.monotonic() - started:.0f} s, {failed} failed; {done}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # no daemon is left
    sys.exit(main(sys.argv[1:]))

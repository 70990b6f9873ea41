# SPDX-License-Identifier: Apache-2.0
"""What torch_check.py, cupy_check.py and jax_check.py have in common: made-up batches to read, and
a table of which claims hold.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import spdld

PAGE = 4096  # the first eight bytes of each are the number of the step
BATCH_BYTES = 8 << 20


class Holds(str):
    """The answer of a claim that holds, with a figure for the table."""

    __slots__ = ()


# What is wrong, or Holds; "": the claim holds.
Claim = Callable[[], str]


def is_of(stamps: Any, step: int) -> bool:
    """Whether an array of stamps, of torch or cupy, has this step's alone."""
    return bool((stamps == step).all())


def others_among(read: Sequence[Any], matches: Callable[[Any, int], bool] = is_of) -> str:
    """What is wrong with the stamps of steps 0, 1 and on; empty: nothing."""
    wrong = sum(not matches(stamps, step) for step, stamps in enumerate(read))
    return "" if wrong == 0 else f"{wrong} of {len(read)} batches are others"


@contextlib.contextmanager
def serve(program: str, kind: str) -> Iterator[str]:
    """The address of a source_server: of kind "host", or of "gpu", which shares memory there."""
    with tempfile.TemporaryDirectory(prefix="spdld-gpu-") as address:
        server = subprocess.Popen(
            [program, address, str(BATCH_BYTES), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert server.stdin is not None and server.stdout is not None
        if not server.stdout.readline().startswith(b"ready"):
            raise SystemExit(f"{program} does not start")
        try:
            yield address
        finally:
            server.stdin.close()
            try:
                server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


class Checks:
    """The claims about one library's arrays, for one of the ways in which batches come."""

    def __init__(self, address: str, way: str) -> None:
        self._address = address
        self._way = way

    def open(self, output: str = "batch", prefetch: int = 4) -> spdld.Loader:
        return spdld.Loader(
            "made-up",
            job="",
            rank=0,
            world_size=1,
            output=output,
            prefetch=prefetch,
            device="cuda:0",
            address=self._address,
            timeout=30.0,
        )

    def claims(self) -> Sequence[Claim]:
        """What is asked; the docstring of each is its text in the table."""
        raise NotImplementedError


def ask(library: str, checks: Callable[[str, str], Checks]) -> int:
    """Prints one line of a table for each claim and way, and returns how many do not hold."""
    broken = 0
    for kind, way in (("host", "pinned"), ("gpu", "cuda ipc")):
        with serve(sys.argv[1], kind) as address:
            for claim in checks(address, way).claims():
                try:
                    answer = claim()
                except Exception as error:  # the other claims are looked at all the same
                    answer = f"{type(error).__name__}: {error}".replace("\n", " ")
                holds = answer == "" or isinstance(answer, Holds)
                broken += not holds
                word = "yes" if holds else "NO"
                print(f"| {library}: {claim.__doc__}: {way} | {word} | {answer} |", flush=True)
    return broken

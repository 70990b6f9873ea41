#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: kill -9 of the processes that run users' functions, of ranks and of the daemon: rows, bytes, what is left
# build: release spdld spdlctl spdld_python spdld_shared
"""runners.py [KILLS [SEED]]: so many kills (200) at random points, a third of each.

The rows go through a function of the user's, a filter and `repeat`: each must have come once, with
its own bytes, and nothing may be left. It is tests/chaos/run.py with `--code`.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from chaos import run


def main() -> int:
    given = [int(word) for word in sys.argv[1:]]
    kills, seed = [*given, *(200, 1)[len(given) :]]
    each = -(-kills // 3)
    return run.main(
        ["--code", "--seed", str(seed), "--kills", str(each), "--consumer-kills", str(each)]
        + ["--swaps", str(max(1, each // 8)), "--jobs", "2", "--ranks", "2"]
    )


if __name__ == "__main__":
    sys.exit(main())

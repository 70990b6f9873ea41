#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: kill -9 of ranks and of the daemon at random points with batches on the fake GPU: rows, and what is left
# build: release spdld spdlctl spdld_python spdld_shared fake_cuda
"""gpu-kills.py [N_CONSUMER [N_DAEMON [SEED]]]: so many kills of ranks (1000) and of the daemon (200).

Every row must have come exactly once, and at the end the driver's ledger, the daemon's descriptors
and its mappings must be where they were. It is tests/chaos/run.py with `--device cuda`, in runs of
at most 200 kills: each ends with nobody left.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from chaos import run

MOST_KILLS = 200  # of ranks in one run
A_SECOND = 2.0  # so many of them


def main() -> int:
    given = [int(word) for word in sys.argv[1:]]
    consumers, daemons, seed = [*given, *(1000, 200, 1)[len(given) :]]
    runs = max(1, -(-consumers // MOST_KILLS))
    failed = 0
    for number in range(runs):
        consumer_kills, kills = (
            total * (number + 1) // runs - total * number // runs for total in (consumers, daemons)
        )
        seconds = max(consumer_kills / A_SECOND, 1.3 * kills, 5.0)
        failed += run.main(
            ["--device", "cuda", "--seed", str(seed + number), "--seconds", str(seconds)]
            + ["--kills", str(kills), "--terms", "0", "--consumer-kills", str(consumer_kills)]
            + ["--freezes", str(kills // 10), "--swaps", str(kills // 10)]
            + ["--jobs", "2", "--ranks", "3"]
        )
    print(f"{consumers} kills of ranks and {daemons} of the daemon in {runs} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

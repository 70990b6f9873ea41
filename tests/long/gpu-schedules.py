#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: 2,000 seeded schedules of late copies, late kernels, drops, seeks and swaps on the fake GPU
# build: release spdld spdlctl spdld_python spdld_shared fake_cuda
"""gpu-schedules.py [N [SEED]]: so many schedules (2000) from this seed on (1), by
tests/chaos/gpu_schedules.py; both ways to a GPU are drawn."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from chaos import gpu_schedules


def main() -> int:
    count, seed = [*sys.argv[1:], *("2000", "1")[len(sys.argv) - 1 :]]
    return gpu_schedules.main(["--count", count, "--seed", seed])


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: order, resume, swap, replica, sharing, death, frontier, ledger and lockstep tests with batches on the fake GPU
# build: release spdld spdlctl spdld_python spdld_shared fake_cuda
#
# gpu-suites.sh [FILTER]: FILTER is a part of a test's name. With SPDLD_KINDS=all on every kind of
# tests/kinds.py.
set -euo pipefail
SPDLD_DEVICES=cuda .venv/bin/python -m pytest -q -p no:cacheprovider -n 2 --dist worksteal \
  ${1:+-k "$1"} \
  tests/integration/test_{order,resume,swap,replicas,sharing,death,frontier,ledger,lockstep}.py

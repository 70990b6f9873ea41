#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: order, resume, swap, replica, sharing and kill tests on every kind of tests/kinds.py
# build: release
#
# kinds.sh [FILTER [KILLS]]: FILTER is a kind or a part of a test's name; KILLS (100) of the daemon
# for each kind in the chaos runs.
set -euo pipefail
filter=${1:-}
kills=${2:-100}
failed=0
SPDLD_KINDS=all .venv/bin/python -m pytest -q -p no:cacheprovider -n 2 --dist worksteal \
  ${filter:+-k "$filter"} tests/integration/test_{order,resume,swap,replicas,sharing}.py || failed=1
for kind in $(PYTHONPATH=tests .venv/bin/python -c 'import kinds; print(*kinds.ALL)'); do
  [[ $kind == *"$filter"* ]] || continue
  printf '%s: ' "$kind"
  .venv/bin/python tests/chaos/run.py --kind "$kind" --seed 1 --kills "$kills" || failed=1
done
exit "$failed"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: 30 minutes of random schedules (kills, restarts, resizes, skips, swaps, seeks), ranks apart and in lockstep
# build: release
# build: asan spdld spdlctl
#
# schedules.sh [SEED [SECONDS]]: seeds from SEED on are run until the time is over; those that fail
# are told and made as small as can be. SPDLD_BUILD_DIR says which daemon.
set -euo pipefail
seed=${1:-1}
seconds=${2:-1800}
python=.venv/bin/python
failed=0
count=0
run() {
  "$python" tests/chaos/lockstep.py --seed "$seed" --shrink "$@" || failed=$((failed + 1))
  count=$((count + 1))
}
SECONDS=0
while ((SECONDS < seconds)); do
  run --apart --steps 100
  # What an operator cannot do while ranks are apart: rollbacks, other batch sizes, ledgers, loops.
  ((seed % 4)) || run --steps 150
  seed=$((seed + 1))
done
printf '%d schedules in %d s, %d failed\n' "$count" "$SECONDS" "$failed"
((failed == 0))

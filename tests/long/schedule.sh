#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: a million random runs of a job's schedule, each compared with a fold that goes step by step
# build: release job_test
#
# schedule.sh [SEED [COUNT]]: CI has the first 10,000 seeds.
set -euo pipefail
seed=${1:-10001}
count=${2:-1000000}
# One process a core: each has a part of the seeds.
parts=$(nproc)
each=$(((count + parts - 1) / parts))
running=()
for ((part = 0; part < parts; ++part)); do
  SPDLD_SCHEDULE_SEED=$((seed + part * each)) SPDLD_SCHEDULES=$each \
    "$SPDLD_BUILD_DIR/bin/job_test" --gtest_brief=1 --gtest_filter='ScheduleRandom.*' &
  running+=($!)
done
failed=0
for one in "${running[@]}"; do wait "$one" || failed=1; done
exit "$failed"

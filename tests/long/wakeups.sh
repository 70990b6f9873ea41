#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: repeats of the engine's and the session's tests under TSan beside busy loops: none stands still
# build: tsan engine_test session_test source_test
#
# wakeups.sh [REPEATS]: of the tests of who wakes whom; the rest is repeated a hundredth as often.
set -euo pipefail
repeats=${1:-2000}
# One run stands still if it takes longer than this; a healthy one takes a fraction, however loaded.
stands_still_s=600

loops=()
for ((i = 0; i < $(nproc); ++i)); do
  (while :; do :; done) &
  loops+=($!)
done
trap 'kill "${loops[@]}" 2>/dev/null' EXIT

# repeat COUNT PROGRAM FILTER: in turns of 50, so that a standstill is told from a long way.
repeat() {
  local left=$1 program=$2 filter=$3 turn rc
  printf '%s %s: %s times\n' "$program" "$filter" "$left"
  while ((left > 0)); do
    turn=$((left < 50 ? left : 50))
    rc=0
    timeout --signal=ABRT "$stands_still_s" "build/tsan/bin/$program" --gtest_brief=1 \
      --gtest_shuffle --gtest_throw_on_failure --gtest_repeat="$turn" --gtest_filter="$filter" \
      >build/tsan/wakeups.log 2>&1 || rc=$?
    if ((rc)); then
      tail -n 60 build/tsan/wakeups.log
      printf '%s %s: failed (%d: 124 or 134 is a standstill), with %d to go\n' \
        "$program" "$filter" "$rc" "$left" >&2
      return 1
    fi
    left=$((left - turn))
  done
}

about_waking='*ExecutorWakeTest*:*ExecutorTest*:*FairShareTest.TakesAStages*:*FairShareTest.LetsNoMore*'
repeat "$repeats" engine_test "$about_waking"
repeat "$repeats" source_test 'IoPool*'
repeat "$repeats" session_test 'StreamTest*'
repeat $((repeats / 100)) engine_test "-$about_waking"
repeat $((repeats / 100)) session_test '-StreamTest*'

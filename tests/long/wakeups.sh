#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: repeats of the engine's, the streams' and the session's tests under TSan beside busy loops: none stands still
# build: tsan engine_test session_test source_threads_test stream_test
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
logs=$(mktemp -d)
trap 'kill "${loops[@]}" $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT

# repeat COUNT TURN PROGRAM FILTER: so many in one process, so that a standstill is told from a long
# way.
repeat() {
  local left=$1 most=$2 program=$3 filter=$4 turn rc log
  log=$(mktemp -p "$logs")
  printf '%s %s: %s times\n' "$program" "$filter" "$left"
  while ((left > 0)); do
    turn=$((left < most ? left : most))
    rc=0
    timeout --signal=ABRT "$stands_still_s" "build/tsan/bin/$program" --gtest_brief=1 \
      --gtest_shuffle --gtest_throw_on_failure --gtest_repeat="$turn" --gtest_filter="$filter" \
      >"$log" 2>&1 || rc=$?
    if ((rc)); then
      tail -n 60 "$log"
      printf '%s %s: failed (%d: 124 or 134 is a standstill), with %d to go\n' \
        "$program" "$filter" "$rc" "$left" >&2
      return 1
    fi
    left=$((left - turn))
  done
  printf '%s %s: done, %d s\n' "$program" "$filter" "$SECONDS"
}

# At once: each is further load to the others.
about_waking='*ExecutorWakeTest*:*ExecutorTest*:*FairShareTest.TakesAStages*:*FairShareTest.LetsNoMore*'
parts=()
repeat "$repeats" 25 engine_test "$about_waking" & parts+=($!)
repeat "$repeats" 25 source_threads_test 'IoPool*' & parts+=($!)
repeat "$repeats" 25 stream_test 'StreamTest*' & parts+=($!)
for part in "${parts[@]}"; do wait "$part"; done
parts=()
repeat $((repeats / 100)) 1 engine_test "-$about_waking" & parts+=($!)
repeat $((repeats / 100)) 1 stream_test '-StreamTest*' & parts+=($!)
repeat $((repeats / 100)) 1 session_test '*' & parts+=($!)
for part in "${parts[@]}"; do wait "$part"; done

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [CLAIM...]: what lies beside this file, on the first GPU of this machine; the table that it
# prints is kept in report.md. It needs NVIDIA's driver and nothing else.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
cd "$here" || exit 1

# What starts a program: where libraries were brought along, their own loader.
for name in driver_facts gpu_check source_server; do
  {
    echo '#!/bin/sh'
    if [[ -x lib/ld.so ]]; then
      echo "exec '$here/lib/ld.so' --library-path '$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}'" \
        "'$here/$name' \"\$@\""
    else
      echo "exec '$here/$name' \"\$@\""
    fi
  } >"$name.sh"
  chmod +x "$name.sh"
done
export GPU_CHECK_SELF=$here/gpu_check.sh

facts() {
  local log=$1
  shift
  "$@" >"$log" 2>&1
  local code=$?
  local passed failed skipped
  passed=$(grep -c '^\[       OK' "$log")
  failed=$(grep -c '^\[  FAILED  \] .* ms)' "$log")
  skipped=$(grep -c '^\[  SKIPPED \] .* ms)' "$log")
  echo "$passed hold, $failed do not, $skipped could not be asked ($log)"
  grep '^\[  FAILED  \] .* ms)' "$log" | sed 's/^\[  FAILED  \] /  does not hold: /; s/ (.*//'
  grep '^\[  ANSWER  \]' "$log" | sed 's/^\[  ANSWER  \] /  answer: /'
  return "$code"
}

{
  date -u '+%Y-%m-%d'
  nvidia-smi --query-gpu=name,driver_version,compute_mode --format=csv,noheader 2>/dev/null | head -1
  failures=0
  if (($# == 0)); then
    printf '\nFacts of the driver that the fake one is built by: '
    facts driver_facts.log ./driver_facts.sh || failures=$((failures + 1))
  fi
  echo
  ./gpu_check.sh "$here/source_server.sh" "$@" || failures=$((failures + 1))
  if (($# == 0)) && command -v compute-sanitizer >/dev/null; then
    printf '\ncompute-sanitizer: '
    if GPU_CHECK_BATCHES=40 compute-sanitizer --target-processes all --error-exitcode 9 \
      ./gpu_check.sh "$here/source_server.sh" values >sanitizer.log 2>&1; then
      echo 'no error (sanitizer.log)'
    else
      echo 'see sanitizer.log'
      failures=$((failures + 1))
    fi
  fi
  echo
  if ((failures == 0)); then echo 'all holds'; else echo "$failures of these did not pass"; fi
} | tee report.md
grep -q '^all holds' report.md

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [CLAIM...]: what lies beside this file, on the first GPU of this machine; the table that it
# prints is kept in report.md. It needs NVIDIA's driver and nothing else; where there is a Python
# with torch, cupy or JAX, and CMake, a compiler and the CUDA Toolkit to build spdld's package for
# it, their arrays are looked at, too. Each part is ended where it takes far too long, and the others
# are asked all the same; GPU_CHECK_LIMIT_S=SECONDS sets another limit for each.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
cd "$here" || exit 1
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  echo 'run.sh [CLAIM...]: asks all, or the claims whose text has one of these words, of the first GPU'
  exit
fi

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

# limited SECONDS PROGRAM [ARGUMENT...]: ends the program, and all that it has started, after so
# long, and says so.
limited() {
  local limit_s=${GPU_CHECK_LIMIT_S:-$1}
  shift
  # In a process group of its own, where ^C of a terminal does not get.
  timeout --kill-after=10 "$limit_s" "$@" &
  local pid=$! code
  trap 'kill "$pid"; exit 130' INT TERM
  wait "$pid"
  code=$?
  trap - INT TERM
  if ((code == 124 || code == 137)); then
    printf '\n%s was ended after %s seconds\n' "$(basename "$1")" "$limit_s"
  fi
  return "$code"
}

# What the package spdld needs and is not there; empty: nothing.
missing_for_package() {
  python3 -c 'import numpy' 2>/dev/null || echo 'a Python with numpy'
  command -v cmake >/dev/null || echo CMake
  local header found=
  for header in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr; do
    [[ ! -f $header/include/cudaTypedefs.h ]] || found=yes
  done
  [[ -n $found ]] || echo "the CUDA Toolkit's headers"
  command -v c++ >/dev/null || echo 'a C++ compiler'
}

# The package spdld of the sources that lie beside this file, for this machine's Python.
build_package() {
  PYTHONPATH=$here/source/python-build cmake -S source -B package -DCMAKE_BUILD_TYPE=Release \
    -DSPDLD_BUILD_SERVER=OFF -DSPDLD_BUILD_TESTS=OFF -DSPDLD_BUILD_BENCHMARKS=OFF \
    -DPython_EXECUTABLE="$(command -v python3)" &&
    limited 900 cmake --build package --target spdld_python -j "$(nproc)"
}

# The libraries whose arrays are asked about, and what fails where one is missing or sees no GPU.
declare -A sees_gpu=(
  [torch]='import torch; torch.cuda.init()'
  [cupy]='import cupy; cupy.cuda.runtime.getDeviceCount()'
  [jax]='import jax; jax.devices("gpu")'
)

array_checks() {
  local library missing why there=() failed=0
  for library in torch cupy jax; do
    if why=$(XLA_PYTHON_CLIENT_PREALLOCATE=false \
      limited 120 python3 -c "${sees_gpu[$library]}" 2>&1); then
      there+=("$library")
    else
      echo "| arrays of $library | not asked: no $library | ${why##*$'\n'} |"
    fi
  done
  ((${#there[@]})) || return 0
  missing=$(missing_for_package | paste -sd, | sed 's/,/, /g')
  if [[ -n $missing ]]; then
    echo "| arrays of ${there[*]} | not asked | missing: $missing |"
    return
  fi
  if ! build_package >package.log 2>&1; then
    echo "| arrays of ${there[*]} | NO | the package does not build (package.log) |"
    return 1
  fi
  for library in "${there[@]}"; do
    PYTHONPATH=$here/package/python limited 900 \
      python3 "source/${library}_check.py" "$here/source_server.sh" || failed=1
  done
  return "$failed"
}

facts() {
  local log=$1
  shift
  limited 300 "$@" >"$log" 2>&1
  local code=$?
  local passed failed skipped
  passed=$(grep -c '^\[       OK' "$log")
  failed=$(grep -c '^\[  FAILED  \] .* ms)' "$log")
  skipped=$(grep -c '^\[  SKIPPED \] .* ms)' "$log")
  echo "$passed hold, $failed do not, $skipped could not be asked ($log)"
  grep '^\[  FAILED  \] .* ms)' "$log" | sed 's/^\[  FAILED  \] /  does not hold: /; s/ (.*//'
  if grep '^driver_facts.* was ended after' "$log"; then
    grep '^\[ RUN ' "$log" | tail -1 | sed 's/^\[ RUN      \] /  in the middle of: /'
  fi
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
  limited 3600 ./gpu_check.sh "$here/source_server.sh" "$@" || failures=$((failures + 1))
  if (($# == 0)); then
    array_checks || failures=$((failures + 1))
  fi
  if (($# == 0)) && command -v compute-sanitizer >/dev/null; then
    printf '\ncompute-sanitizer: '
    if GPU_CHECK_BATCHES=40 limited 900 compute-sanitizer --target-processes all --error-exitcode 9 \
      ./gpu_check.sh "$here/source_server.sh" values >sanitizer.log 2>&1; then
      echo 'no error (sanitizer.log)'
    else
      echo 'see sanitizer.log'
      failures=$((failures + 1))
    fi
  fi
  echo
  if ((failures == 0)); then echo 'all holds'; else echo "$failures of these programs did not pass"; fi
} | tee report.md
grep -q '^all holds' report.md

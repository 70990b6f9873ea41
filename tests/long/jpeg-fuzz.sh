#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: libFuzzer on our JPEG decoder for an hour: each input as libjpeg-turbo has it, in every way
# build: fuzz jpeg_fuzzer
#
# jpeg-fuzz.sh [SECONDS [CORPUS]]: a corpus that is given is kept and grown; else one is made anew.
set -euo pipefail
bin=${SPDLD_BUILD_DIR:-build/fuzz}/bin
if [[ -n ${2:-} ]]; then
  corpus=$2
  mkdir -p "$corpus"
else
  corpus=$(mktemp -d)
  trap 'rm -rf "$corpus"' EXIT
fi
"$bin/jpeg_fuzzer" -max_total_time="${1:-3600}" -max_len=24576 -timeout=20 -rss_limit_mb=2048 \
  -print_final_stats=1 -artifact_prefix="$corpus-" "$corpus"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: 5,000 damaged files of each format of images, media, arrays, tables and tar under ASan and UBSan: all end as rows or as errors of the data's
# build: asan array_mutation_test audio_mutation_test demux_mutation_test media_mutation_test table_mutation_test tar_mutation_test video_mutation_test
#
# mutants.sh [MUTANTS] [KIND]: of each format; KIND is what stands before _mutation_test. A program
# that takes more than 1 GiB of memory or an hour fails.
set -euo pipefail
export ASAN_OPTIONS=hard_rss_limit_mb=1024:${ASAN_OPTIONS:-} SPDLD_MUTATIONS=${1:-5000}
for program in "$SPDLD_BUILD_DIR"/bin/${2:-*}_mutation_test; do
  timeout 3600 "$program"
done

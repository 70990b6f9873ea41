#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: 5,000 damaged files of each image format under ASan and UBSan: all end as rows or as errors of the data's
# build: asan media_mutation_test
#
# mutated-images.sh [MUTANTS]: of each format. More than 1 GiB of memory ends it, and so does an
# hour.
set -euo pipefail
ASAN_OPTIONS=hard_rss_limit_mb=1024:${ASAN_OPTIONS:-} SPDLD_MUTATIONS=${1:-5000} \
  timeout 3600 "$SPDLD_BUILD_DIR/bin/media_mutation_test"

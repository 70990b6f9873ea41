#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: our JPEG decoder against libjpeg-turbo: 10^8 blocks, 50,000 regions, 1.28 M files, 100,000 damaged ones, swaps with verify: 1/1
# build: release
#
# jpeg.sh [BLOCKS [DAMAGED [REGIONS [FILES]]]]
set -euo pipefail
bin=${SPDLD_BUILD_DIR:-build/release}/bin
export SPDLD_MUTATIONS=${2:-100000}
SPDLD_BLOCKS=${1:-100000000} SPDLD_REGIONS=${3:-50000} SPDLD_FILES=${4:-1280000} \
  "$bin/media_isa_test" --gtest_filter='Jpeg*:Scan*:HuffmanTable*'
"$bin/media_threads_test" --gtest_filter='Seek*'
"$bin/media_mutation_test" --gtest_filter='*Jpeg*'
SPDLD_VERIFY=1/1 .venv/bin/python -m pytest -q -p no:cacheprovider -n 2 --dist worksteal \
  tests/integration/test_{order,resume,swap,replicas}.py
.venv/bin/python tests/chaos/run.py --seed 1 --swaps 8

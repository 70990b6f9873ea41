#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: 100,000 opens while directories, files and links are exchanged: nothing forbidden is read
# build: release source_threads_test spdld spdlctl
set -euo pipefail
SPDLD_RACE_TRIES=${1:-100000} "$SPDLD_BUILD_DIR/bin/source_threads_test" \
  --gtest_filter='AccessTest.NothingExchangedOnTheWayIsRead'
SPDLD_RACE_TRIES=${2:-2000} .venv/bin/python -m pytest -q -p no:cacheprovider \
  --timeout=900 tests/integration/test_access.py -k exchanged

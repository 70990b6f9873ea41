#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: all that CI knows, also what it leaves out where a change does not touch it
# build: release spdld
set -euo pipefail
unset SPDLD_TEST_SECONDS
SPDLD_BASE=HEAD exec .ci/run "$@"

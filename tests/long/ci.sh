#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: what CI leaves out where a change cannot break it: models, the fake driver's own tests, lint of all
# build: release
set -euo pipefail
SPDLD_BASE=$(git rev-parse HEAD) exec .ci/run "$@"

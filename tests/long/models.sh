#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: every state of the models of the protocol, and of the longer runs of a job that CI leaves out
# build: release spdld
#
# models.sh [PART OF A LINE]: as of tests/model/check.
set -euo pipefail
SPDLD_MODELS=long exec tests/model/check "$@"

# SPDX-License-Identifier: Apache-2.0
"""For tests in which the daemon dies or fails at a named place."""

from __future__ import annotations

import daemon
import pytest

BUILT_IN = daemon.has_failpoints()
needs_failpoints = pytest.mark.skipif(not BUILT_IN, reason="this build has no failpoints")

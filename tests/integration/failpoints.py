# SPDX-License-Identifier: Apache-2.0
"""For tests in which the daemon dies or fails at a named place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import daemon
import pytest

BUILT_IN = daemon.has_failpoints()


def needs_failpoints(test: Callable[..., Any]) -> Callable[..., Any]:
    without = pytest.mark.skipif(not BUILT_IN, reason="this build has no failpoints")
    return pytest.mark.failpoints(without(test))

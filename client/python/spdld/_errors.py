# SPDX-License-Identifier: Apache-2.0
"""What the package raises when the daemon, the pipeline or a lease is the reason.

Wrong arguments raise the usual ``TypeError`` and ``ValueError`` instead.
"""

from __future__ import annotations

import builtins


class Error(Exception):
    """Base of all of them. ``code`` is gRPC's number for what went wrong."""

    code: int = 2


class ConnectionError(Error, builtins.ConnectionError):
    """No daemon, or it is gone and did not come back in time, or it speaks another protocol."""

    code = 14


class PipelineError(Error):
    """The daemon refused, or the pipeline failed: the message is the daemon's own."""

    code = 9


class LeaseError(Error):
    """The caller holds what it must let go, or lets go of what is still in use."""

    code = 9


class DeviceError(Error):
    """The GPU that batches were to go to cannot be had, or it failed."""

    code = 14


class TimeoutError(Error, builtins.TimeoutError):
    """The daemon is there, and silent or without anything of the next batch for ``timeout``."""

    code = 4


class BadSample(Error):  # noqa: N818 - for a function to raise
    """Raised by a function of the user's own for a row: the item is bad, and ``on_error`` decides."""

    code = 15

# SPDX-License-Identifier: Apache-2.0
"""Pipelines that a job can change between, and where it did."""

from __future__ import annotations

from typing import Any

# Stages. Of one shape, but not of one content.
PLAIN = ["fetch", "decode_image", {"resize": {"size": [32, 32]}}]
CROPPED = ["fetch", "decode_image", {"center_crop": {"size": [24, 24]}}, *PLAIN[2:]]
# Of another shape.
SMALLER = ["fetch", "decode_image", {"resize": {"size": [16, 16]}}]


def phases(daemon: Any) -> list[tuple[int, int, int]]:
    """Of job 'run': epoch and step from which on it has a version, and which."""
    return [
        (phase["from"]["epoch"], phase["from"]["step"], phase["pipeline_version"])
        for phase in daemon.ctl_json("get", "jobs", "run")["phases"]
    ]

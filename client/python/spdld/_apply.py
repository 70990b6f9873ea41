# SPDX-License-Identifier: Apache-2.0
"""What ``Loader.apply`` takes and gives."""

from __future__ import annotations

import re
from typing import NamedTuple

_STEP = re.compile(r"step:([0-9]{1,18})/([0-9]{1,18})")


class Applied(NamedTuple):
    """What the daemon made of an apply.

    From ``step`` of ``epoch`` on the batches are of ``version`` of the pipeline. ``tuned``: only
    what can be changed while it runs was, at once, and nothing was made anew.
    """

    version: int
    epoch: int
    step: int
    tuned: bool


def parse_at(at: str) -> tuple[str, int, int]:
    """("now" | "next-epoch" | "step", epoch, step) of ``at=``. Raises ValueError."""
    if at in ("now", "next-epoch"):
        return at, 0, 0
    found = _STEP.fullmatch(at) if isinstance(at, str) else None
    if found is None:
        raise ValueError(
            f"at is {at!r}: it is 'next-epoch', 'now' or 'step:EPOCH/STEP', as in 'step:3/500'"
        )
    return "step", int(found[1]), int(found[2])

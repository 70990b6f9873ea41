# SPDX-License-Identifier: Apache-2.0
"""A position as the plain dict that checkpoints hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_VERSION = 1
_NUMBERS = ("seed", "epoch", "position", "step")

# How far the loop has come in a run of its job, and the bits of these numbers.
_IN_RUN = {"run": 64, "branch": 32, "turn": 64}

# order digest, seed, epoch, position, step; run (0: not known), branch, turn
Cursor = tuple[str, int, int, int, int, int, int, int]


def state_of(cursor: Cursor) -> dict[str, int | str]:
    digest, *numbers = cursor
    place, in_run = numbers[: len(_NUMBERS)], numbers[len(_NUMBERS) :]
    state = {
        "version": _VERSION,
        "order_digest": digest,
        **dict(zip(_NUMBERS, place, strict=True)),
    }
    return {**state, **dict(zip(_IN_RUN, in_run, strict=True))} if in_run[0] else state


def cursor_of(state: Mapping[str, Any]) -> Cursor:
    """What state_of() was given. Raises ValueError if ``state`` is none of its dicts.

    One without a run is a place alone.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"state is a {type(state).__name__}: give what state_dict() returned")
    if state.get("version") != _VERSION:
        raise ValueError(
            f"state has version {state.get('version')!r}: this spdld reads version "
            f"{_VERSION} of what state_dict() returns"
        )
    for key in _NUMBERS:
        value = state.get(key)
        if type(value) is not int or (value < 0 and key != "seed"):
            raise ValueError(f"state[{key!r}] is {value!r}: it must be a whole number")
    digest = state.get("order_digest")
    if not isinstance(digest, str):
        raise ValueError(f"state['order_digest'] is {digest!r}: it must be a text")
    for key, bits in _IN_RUN.items():
        value = state.get(key, 0)
        if type(value) is not int or not 0 <= value < 2**bits:
            raise ValueError(
                f"state[{key!r}] is {value!r}: it must be a whole number, less than 2**{bits}"
            )
    return (digest, *(state[key] for key in _NUMBERS), *(state.get(key, 0) for key in _IN_RUN))

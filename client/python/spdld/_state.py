# SPDX-License-Identifier: Apache-2.0
"""A position as the plain dict that checkpoints hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_VERSION = 1
_NUMBERS = ("seed", "epoch", "position", "step")

# order digest, seed, epoch, position, step; how many of the job's moves lie behind it, if known
Cursor = tuple[str, int, int, int, int, int | None]
_MOST_MOVES = 2**31


def state_of(cursor: Cursor) -> dict[str, int | str]:
    digest, *numbers, moves = cursor
    state = {
        "version": _VERSION,
        "order_digest": digest,
        **dict(zip(_NUMBERS, numbers, strict=True)),
    }
    return state if moves is None else {**state, "moves": moves}


def cursor_of(state: Mapping[str, Any]) -> Cursor:
    """What state_of() was given. Raises ValueError if ``state`` is none of its dicts."""
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
    moves = state.get("moves")
    if moves is not None and (type(moves) is not int or not 0 <= moves <= _MOST_MOVES):
        raise ValueError(f"state['moves'] is {moves!r}: it must be a whole number, 2**31 at most")
    return (digest, *(state[key] for key in _NUMBERS), moves)

# SPDX-License-Identifier: Apache-2.0
"""Arguments of the wrong type, told in a sentence and not in a binding's signature."""

from __future__ import annotations

import numbers


def whole(**given: object) -> dict[str, int | None]:
    """The arguments as ints; None stays. Raises TypeError for what is no whole number."""
    return {name: None if value is None else _whole(name, value) for name, value in given.items()}


def _whole(name: str, value: object) -> int:
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    raise TypeError(f"{name} is {value!r}, a {type(value).__name__}: give a whole number")


def seconds(name: str, value: object) -> float:
    """Raises TypeError for what is no number, ValueError for one that is not above 0."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}: give seconds")
    if not float(value) > 0:
        raise ValueError(f"{name} is {value}: give seconds, more than 0")
    return float(value)


def text(name: str, value: object) -> str | None:
    """Raises TypeError for what is neither a text nor None."""
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{name} is {value!r}, a {type(value).__name__}: give a text")

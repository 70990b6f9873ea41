# SPDX-License-Identifier: Apache-2.0
"""Arguments of the wrong type, told in a sentence and not in a binding's signature."""

from __future__ import annotations

import difflib
import inspect
import numbers
import sys
from collections.abc import Callable, Iterable

# What a DataLoader takes and a Loader does not.
_OF_DATALOADER = {
    "collate_fn": "give map= a function of the finished batch",
    "drop_last": "the pipeline's file says it: batch: {size: N, last: drop}",
    "num_workers": "leave it out: the daemon has the threads",
    "persistent_workers": "leave it out: there are no workers in this process",
    "pin_memory": "leave it out; batches of output='torch' have pin_memory()",
    "prefetch_factor": "it is called prefetch",
    "sampler": "the pipeline's file says it: shuffle: global",
    "shuffle": "the pipeline's file says it: shuffle: global",
    "transform": "the pipeline's file says it: stages",
}


def known(function: Callable[..., object], given: Iterable[str]) -> None:
    """Raises TypeError for keywords that ``function`` does not have, with what may be meant."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return  # of a subclass, say, which passes them on
    names = list(parameters)[1:]
    for name in given:
        if name in names:
            continue
        hint = _OF_DATALOADER.get(name)
        if hint is None:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise TypeError(f"Loader has no argument {name!r}: {hint}")


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


def device_name(value: object) -> str:
    """Gives "cuda:N", or "" for None and "cpu".

    Raises TypeError and ValueError for what is no device.
    """
    if value is None:
        return ""
    # A torch.device: it is known by its attributes, so that torch need not be there.
    kind, index = getattr(value, "type", None), getattr(value, "index", None)
    if isinstance(value, int) and not isinstance(value, bool):
        kind, index = "cuda", value
    elif isinstance(value, str):
        kind, colon, number = value.partition(":")
        index = None
        if colon:
            index = int(number) if number.isdecimal() else -1
    if not isinstance(kind, str):
        raise TypeError(f"device is {value!r}, a {type(value).__name__}: give 'cuda' or 'cuda:N'")
    if kind == "cpu" and not index:
        return ""
    if kind != "cuda" or (index is not None and index < 0):
        raise ValueError(f"device is {value!r}: it is 'cuda', 'cuda:N' or 'cpu'")
    if index is None:
        torch = sys.modules.get("torch")
        index = torch.cuda.current_device() if torch and torch.cuda.is_available() else 0
    return f"cuda:{index}"

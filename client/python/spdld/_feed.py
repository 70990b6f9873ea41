# SPDX-License-Identifier: Apache-2.0
"""What a loader hands out, one thing after the other, and the position behind each."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _core
from ._batch import Asks
from ._map import OrderedMap, StopCheck
from ._state import Cursor

END = object()  # of an epoch, in place of a batch

Facts = tuple[int, int, int, int]  # steps of an epoch, items, rows of a batch, version
_running_maps: weakref.WeakSet[OrderedMap] = weakref.WeakSet()


@atexit.register
def _stop_maps() -> None:
    # A thread that came back into Python after the interpreter's end would take the process down.
    for running in list(_running_maps):
        running.stop()


def takes_rng(fn: Callable[..., Any]) -> bool:
    """Whether map is to be called with a generator. Raises TypeError if it cannot be called."""
    try:
        # Not of what it wraps: it is this one that is called.
        signature = inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):  # a builtin, say
        return False
    parameter = signature.parameters.get("rng")
    by_keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    own = isinstance(fn, functools.partial) and "rng" in fn.keywords
    draws = not own and parameter is not None and parameter.kind in by_keyword
    try:
        signature.bind(None, **({"rng": None} if draws else {}))
    except TypeError as error:
        raise TypeError(
            f"map is called with a batch, and with rng= if it has a parameter of that name, and "
            f"takes {signature}: {error}"
        ) from None
    return draws


def _generator(seed: int, epoch: int, step: int, shard: int) -> np.random.Generator:
    """The same for the same batch, whatever thread makes it and however often the run restarts."""
    return np.random.default_rng([seed % 2**64, epoch, step, shard])


class Feed:
    """Batches of libspdld's loader as ``make`` makes them, and then ``fn``, if there is one.

    ``fn`` runs ahead in threads: what this says of epoch, position and facts is so after what was
    handed out last, wherever libspdld's loader is. Its owner's calls come one at a time.
    """

    def __init__(
        self,
        core: _core.Loader,
        make: Callable[[_core.Batch, Asks], Any],
        fn: Callable[[Any], Any] | None,
        threads: int,
        check: StopCheck,
    ) -> None:
        self._map: OrderedMap | None = None
        self._place: tuple[Cursor, Facts] | None = None  # after what map handed out
        # Turns of which the daemon asks to be told when the caller has come to them.
        self._asked: deque[int] = deque()
        self._core = core
        self._make = make
        self._asks: Asks = weakref.ref(core)
        self._fn = fn
        self._draws = fn is not None and takes_rng(fn)
        self._threads = threads
        self._check = check

    @property
    def epoch(self) -> int:
        return self._core.epoch if self._place is None else self._place[0][2]

    @property
    def cursor(self) -> Cursor:
        return self._core.state() if self._place is None else self._place[0]

    @property
    def facts(self) -> Facts:
        """Attaches."""
        return self._core.facts() if self._place is None else self._place[1]

    def take(self) -> Any:
        """The next thing to hand out, or END."""
        if self._fn is None:
            batch = self._core.next()
            return END if batch is None else self._make(batch, self._asks)
        if self._map is None:
            self._start()
        result, self._place = self._map.get()
        self._tell_handed(self._place[0][-1])
        return result

    def _tell_handed(self, turn: int) -> None:
        told = 0
        while self._asked and self._asked[0] <= turn:
            told = self._asked.popleft()
        if told:
            with self.paused():
                self._core.handed(told)

    def go_to(self, cursor: Cursor) -> None:
        self.stop()
        self._core.load_state(cursor)
        self._place = None

    def skip_steps(self, steps: int) -> None:
        """Of those that follow what was handed out last; what was made ahead is dropped."""
        if self._map is not None:
            self.stop()
            if self._place is not None:
                self._core.load_state(self._place[0])
        self._place = None
        self._core.skip_steps(min(steps, 2**63))

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is taken of libspdld's loader ahead meanwhile."""
        return contextlib.nullcontext() if self._map is None else self._map.paused()

    def stop(self) -> None:
        """Drops what was made ahead. The next take() begins anew."""
        if self._map is not None:
            self._map.stop()
            self._map = None
            self._asked.clear()

    def __del__(self) -> None:
        if self._map is not None:
            self._map.signal_stop()

    def _start(self) -> None:
        # The map's threads hold these, and must not hold what is to stop them.
        core, make, asks, fn, draws = self._core, self._make, self._asks, self._fn, self._draws
        asked = self._asked
        self._place = core.place()  # before anything is made ahead

        def pull() -> tuple[Any, tuple[Cursor, Facts]]:
            batch, is_asked = core.next_ahead()
            place = core.place()
            if is_asked:
                asked.append(place[0][-1])
            if batch is None:
                return END, place
            key = place[0][1], batch.epoch, batch.step, core.shard
            return (make(batch, asks), key), place

        def apply(pulled: Any) -> Any:
            if pulled is END:
                return END
            batch, key = pulled
            del pulled
            began = time.perf_counter_ns()
            try:
                return fn(batch, rng=_generator(*key)) if draws else fn(batch)
            finally:
                core.mapped(time.perf_counter_ns() - began)

        self._map = OrderedMap(pull, apply, self._threads)
        self._check.watch(self._map)
        _running_maps.add(self._map)

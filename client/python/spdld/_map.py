# SPDX-License-Identifier: Apache-2.0
"""``Loader(map=fn)``: a function on each batch, in threads, results in order."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ._errors import LeaseError


class Stopped(Exception):  # noqa: N818 - no error
    """Leaves a worker's wait for the daemon, for good or for a pause. Never seen by callers."""


class _Slot:
    __slots__ = ("done", "error", "place", "result")

    def __init__(self, place: object) -> None:
        self.place = place
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False


class OrderedMap:
    """Runs ``fn(pull())`` in some threads and gives the results in the order of the pulls.

    ``pull`` returns (batch, place), and get() the place beside the result. One thread pulls at a
    time. At most ``threads + 1`` results are being made or waiting to be taken.
    An exception of ``fn`` comes out in its batch's turn, and the next get() goes on after it; one
    of ``pull`` ends the whole. stop() ends it; after that, make another one.

    What waits here holds leases. So when pull() says LeaseError, it is tried again once the caller
    has taken what is there, and only if it then says so again it is the caller's.
    """

    def __init__(
        self,
        pull: Callable[[], tuple[Any, object]],
        fn: Callable[[Any], Any],
        threads: int,
    ) -> None:
        self._pull = pull
        self._fn = fn
        self._limit = threads + 1
        self._lock = threading.Condition()
        self._pulling = threading.Lock()
        self._slots: deque[_Slot] = deque()
        self._caller_waits = False
        self._failed = False  # pull() raised: nobody pulls any more
        self._stopping = threading.Event()
        self._pauses = 0  # callers of paused()
        self._pid = os.getpid()  # a forked child has the object and none of its threads
        self._threads = [
            threading.Thread(target=self._work, name=f"spdld-map-{i}", daemon=True)
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def leaving(self) -> bool:
        """Whether the calling thread is one that pulls, and is to leave its wait."""
        wanted = self._stopping.is_set() or self._pauses > 0
        return wanted and threading.current_thread() in self._threads

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nobody begins a pull meanwhile, and who waits in one leaves it soon."""
        with self._lock:
            self._pauses += 1
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1
                self._lock.notify_all()

    def get(self) -> tuple[Any, object]:
        """The next (result, place), waited for. Raises what ``fn`` or ``pull`` raised."""
        with self._lock:
            self._caller_waits = True
            self._lock.notify_all()
            try:
                while not (self._slots and self._slots[0].done):
                    if self._stopping.is_set():
                        raise RuntimeError("the loader was closed during next()")
                    self._lock.wait()
                slot = self._slots.popleft()
            finally:
                self._caller_waits = False
            self._lock.notify_all()
        if slot.error is not None:
            raise slot.error
        return slot.result, slot.place

    def signal_stop(self) -> None:
        """Tells the threads to stop and waits for none. Safe in a finaliser on any thread."""
        self._stopping.set()
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._lock.notify_all()

    def stop(self) -> None:
        """Stops the threads and waits for them; drops what was not taken. Idempotent."""
        self.signal_stop()
        if os.getpid() != self._pid:
            return
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        with self._lock:
            self._slots.clear()

    def _work(self) -> None:
        while True:
            with self._pulling:
                slot, batch = self._begin()
            if slot is None:
                return
            result, error = None, None
            try:
                result = self._fn(batch)
            except BaseException as raised:
                error = raised
            del batch
            self._finish(slot, result, error)
            del slot, result, error

    def _begin(self) -> tuple[_Slot | None, Any]:
        """Waits for room, pulls, and takes the next place in the order."""
        starved = False
        while True:
            with self._lock:
                while not self._stopping.is_set() and (
                    self._failed
                    or self._pauses
                    or len(self._slots) >= self._limit
                    or (starved and (self._slots or not self._caller_waits))
                ):
                    self._lock.wait()
                if self._stopping.is_set():
                    return None, None
            try:
                batch, place = self._pull()
            except Stopped:
                continue  # the wait above tells a stop from a pause
            except LeaseError as error:
                if not starved:
                    starved = True
                    continue
                failure: BaseException = error
            except BaseException as error:
                failure = error
            else:
                slot = _Slot(place)
                with self._lock:
                    self._slots.append(slot)
                return slot, batch
            with self._lock:
                slot = _Slot(None)
                slot.error, slot.done = failure, True
                self._slots.append(slot)
                self._failed = not isinstance(failure, LeaseError)
                self._lock.notify_all()
            starved = False

    def _finish(self, slot: _Slot, result: object, error: BaseException | None) -> None:
        with self._lock:
            slot.result, slot.error, slot.done = result, error, True
            self._lock.notify_all()


class StopCheck:
    """Called in libspdld's waits: makes a map's thread leave, for good or for a pause.

    libspdld's loader holds it, out of the garbage collector's sight, so that it must hold neither
    the loader nor the map. A map whose threads are there is held by them.
    """

    def __init__(self) -> None:
        self._map: Callable[[], OrderedMap | None] = lambda: None

    def watch(self, running: OrderedMap) -> None:
        self._map = weakref.ref(running)

    def __call__(self) -> None:
        running = self._map()
        if running is not None and running.leaving:
            raise Stopped

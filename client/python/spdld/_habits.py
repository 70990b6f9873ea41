# SPDX-License-Identifier: Apache-2.0
"""Words for loops that begin elsewhere than those who wrote them mean.

A framework that resumes a run, or makes its loaders anew, counts epochs and batches by itself, and a loader
has a position of its own. Nothing fails then: the model sees the wrong batches.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._feed import Feed

_log = logging.getLogger("spdld")

# Modules whose habits are known. Without them nobody looks at the stack.
_FRAMEWORKS = ("accelerate", "transformers", "lightning", "pytorch_lightning")

_EVALUATION = ("evaluate", "predict", "evaluation_loop", "prediction_loop")


class Place(NamedTuple):
    """Where a loop begins, and whether somebody said so: by a state, an epoch, or the ledger."""

    epoch: int
    step: int
    chosen: bool


Job = tuple[str, str, str, int]  # address, job, pipeline, shard
_read: dict[Job, int] = {}  # the epoch after the last one that this process has read to its end
_told: set[tuple[Job, str]] = set()


def loader_is_left(job: Job, feed: Feed) -> None:
    """Remembers what was read by a loader that is closed, or that nobody holds any more."""
    with contextlib.suppress(Exception):  # in a forked child, say
        _, _, epoch, _, step, *_ = feed.cursor
        if step > 0 and step >= feed.facts[0]:  # whoever knows the length asks for no end
            epoch += 1
        _read[job] = max(epoch, _read.get(job, 0))


def check_first_loop(job: Job, place: Place) -> None:
    """Warns if the first loop of a loader repeats what the run has behind it."""
    if (place.epoch, place.step) == (0, 0) and not place.chosen:
        words = _of_a_resumed_run() or _of_an_earlier_loader(job)
        if words is not None:
            _log.warning("the loop begins at epoch 0 again, %s", words)


def check_loop(job: Job, place: Place) -> None:
    """Warns, at each loop, if a framework skips batches that are skipped already, or repeats some."""
    for reader in _readers():
        skipped = _number(reader, "skip_batches")
        if skipped and place.step > 0:
            _log.warning(
                "%d batches are skipped twice: the loader is at step %d of epoch %d by its state, and "
                "%s leaves out as many again: leave skip_first_batches out (with Trainer, "
                "ignore_data_skip=True)",
                skipped,
                place.step,
                place.epoch,
                type(reader).__name__,
            )
            return
        overfit = _number(reader, "trainer", "overfit_batches")
        if overfit and place.epoch == 0 and _is_first(job, "overfit"):
            _log.warning(
                "overfit_batches=%s takes other batches in each epoch, since a loader goes on through "
                "the dataset's order: leave it out, and give the pipeline 'source: {select: {take: N}}'",
                overfit,
            )
            return


def _of_a_resumed_run() -> str | None:
    for reader in _readers():
        skipped = _number(reader, "skip_batches")
        if skipped:
            return (
                f"and {skipped} batches of it are skipped: call loader.load_state_dict() with the state "
                "that was saved and skip nothing (with Trainer, ignore_data_skip=True), or call "
                "loader.set_epoch() with the epoch that is resumed"
            )
        step = _number(reader, "state", "global_step") if _is_trainer(reader) else 0
        if step:
            return (
                f"and {type(reader).__name__} resumes at step {step}: call loader.load_state_dict() "
                "with the state that was saved at that step, and train with ignore_data_skip=True"
            )
    return None


def _of_an_earlier_loader(job: Job) -> str | None:
    epochs = _read.get(job, 0)
    if epochs == 0 or not _is_first(job, "again"):
        return None
    return (
        f"whose batches this process has read by an earlier loader of '{job[2]}', up to the end of epoch "
        f"{epochs - 1}: loader.set_epoch({epochs}) goes on after it, and to keep one loader does, too"
    )


def _is_first(job: Job, what: str) -> bool:
    if (job, what) in _told:
        return False
    _told.add((job, what))
    return True


def _is_trainer(reader: object) -> bool:
    return any(
        kind.__name__ == "Trainer" and kind.__module__.startswith("transformers.")
        for kind in type(reader).__mro__
    )


def _readers() -> Iterator[Any]:
    """The objects whose methods have called for a batch, the innermost first; no evaluation's."""
    if not any(name in sys.modules for name in _FRAMEWORKS):
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in _EVALUATION:
            return
        if frame.f_code.co_varnames[:1] == ("self",):
            yield frame.f_locals.get("self")
        frame = frame.f_back


def _number(of: object, *names: str) -> float:
    """The number that attributes lead to; 0 if they lead to none."""
    with contextlib.suppress(Exception):  # others' properties raise what they like
        for name in names:
            of = getattr(of, name)
        if isinstance(of, (int, float)) and of > 0:
            return of
    return 0

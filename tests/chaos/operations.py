# SPDX-License-Identifier: Apache-2.0
"""What is done to a job, before which step or round of its ranks: a function of the seed alone."""

from __future__ import annotations

import dataclasses
import enum
import random

MOST_EPOCHS_OFF = 2  # where a seek or a change may lie
MOST_STEPS = 26  # of an epoch, and some more: what there is not is refused
MOST_BACK = 40  # steps from a checkpoint to the end of those who saved it
MOST_RANKS = 3
BATCH_SIZES = (2, 3, 5)


class Kind(enum.Enum):
    """One thing that an operator, a loop or fate does."""

    APPLY = "apply"
    APPLY_BATCH = "apply of a batch size"
    TUNE = "tune"
    KILL_DAEMON = "kill -9 of the daemon"
    STOP_DAEMON = "SIGTERM to the daemon"
    REPLACE_RANK = "a rank anew from its own state"
    REPLACE_RANKS = "all ranks anew, each from its own state"
    REPLACE_RANK_BY_OTHER = "a rank anew from another's state"
    RESTART = "all ranks anew from a checkpoint"
    RESTART_BY_LEDGER = "all ranks anew by the ledger"
    SEEK = "seek"
    SKIP = "skip"
    SET_EPOCH = "set_epoch"
    SKIP_STEPS = "skip_steps"
    VARS = "vars"
    ROLLBACK = "rollback"
    RESIZE = "resize"


PERCENT = {
    Kind.APPLY: 6.0,
    Kind.APPLY_BATCH: 2.0,
    Kind.TUNE: 2.0,
    Kind.KILL_DAEMON: 1.5,
    Kind.STOP_DAEMON: 1.5,
    Kind.REPLACE_RANK: 2.0,
    Kind.REPLACE_RANK_BY_OTHER: 1.5,
    Kind.RESTART: 1.5,
    Kind.RESTART_BY_LEDGER: 0.5,
    Kind.SEEK: 2.0,
    Kind.SKIP: 1.5,
    Kind.SET_EPOCH: 1.5,
    Kind.SKIP_STEPS: 1.5,
    Kind.VARS: 1.5,
    Kind.ROLLBACK: 1.5,
}


# Where ranks go each at its own pace: before a round, in which one of them takes many steps.
PERCENT_APART = {
    Kind.APPLY: 6.0,
    Kind.KILL_DAEMON: 5.0,
    Kind.STOP_DAEMON: 3.0,
    Kind.REPLACE_RANK: 5.0,
    Kind.REPLACE_RANKS: 4.0,
    Kind.SEEK: 3.0,
    Kind.SKIP: 5.0,
    Kind.RESIZE: 9.0,
}


@dataclasses.dataclass(frozen=True)
class World:
    """The job and its first pipeline."""

    replicas: bool  # two of one shard; else shards, two at first
    prefetch: int
    batch: int
    last: str


@dataclasses.dataclass(frozen=True)
class Operation:
    """One of them; fields that a kind has no use for stay as drawn. Epochs are counted from now."""

    number: int
    before: int  # this step of the run
    kind: Kind
    rank: int  # of as many as there are then
    ranks: int  # shards after a restart
    back: int  # the checkpoint's age in steps
    at: str  # now | next-epoch | step
    epoch: int  # of the change
    seek_epoch: int  # of a seek, of set_epoch
    step: int
    count: int  # steps to skip, a stage's concurrency
    batch: int

    @property
    def mark(self) -> int:
        """Of what it applies: no other has it."""
        return self.number + 1


def draw_world(seed: int) -> World:
    random_ = random.Random(f"world {seed}")
    return World(
        replicas=random_.random() < 0.5,
        prefetch=random_.choice([2, 4, 8]),
        batch=random_.choice(BATCH_SIZES),
        last=random_.choice(["drop", "pad", "keep"]),
    )


def draw(seed: int, steps: int, percent: dict[Kind, float] = PERCENT) -> list[Operation]:
    """A longer run begins as a shorter one does."""
    random_ = random.Random(seed)
    found: list[Operation] = []
    for before in range(steps):
        kinds = [kind for kind in percent if random_.random() * 100 < percent[kind]]
        random_.shuffle(kinds)
        for kind in kinds:
            found.append(
                Operation(
                    number=len(found),
                    before=before,
                    kind=kind,
                    rank=random_.randrange(MOST_RANKS),
                    ranks=random_.randint(1, MOST_RANKS),
                    back=random_.choice([0, 0, 1, 2, 5, random_.randrange(MOST_BACK)]),
                    at=random_.choice(["now", "next-epoch", "step"]),
                    epoch=random_.randint(0, MOST_EPOCHS_OFF),
                    seek_epoch=random_.randint(-MOST_EPOCHS_OFF, MOST_EPOCHS_OFF),
                    step=random_.randrange(MOST_STEPS),
                    count=random_.randint(1, 5),
                    batch=random_.choice(BATCH_SIZES),
                )
            )
    return found

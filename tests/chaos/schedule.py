# SPDX-License-Identifier: Apache-2.0
"""What befalls whom and when: a function of the seed alone."""

from __future__ import annotations

import dataclasses
import enum
import random


class Blow(enum.Enum):
    """One thing that happens to a daemon or to a rank."""

    KILL_DAEMON = "kill -9 of the daemon"
    STOP_DAEMON = "SIGTERM to the daemon"
    FREEZE_DAEMON = "SIGSTOP, then SIGCONT to the daemon"
    KILL_RANK = "kill -9 of a rank"
    FREEZE_RANK = "SIGSTOP, then SIGCONT to a rank"
    SWAP = "another pipeline for a job"
    KILL_RUNNER = "kill -9 of what runs a function"


@dataclasses.dataclass(frozen=True)
class Event:
    """A blow at a time (s from the start); fields that a blow has no use for stay as drawn."""

    at_s: float
    blow: Blow
    job: int
    rank: int
    lasts_s: float  # of a freeze, or until what was killed is started again
    swap_at: str  # now | next-epoch | step:+E/N, so many epochs from where the job stands
    draw: int  # which of several
    failpoints: str  # $SPDLD_FAILPOINTS of the daemon that is started next


# Where a daemon may die by itself, and at most at which hit: all points of base/failpoint.h.
FAILPOINTS = {
    "delivery.arena.create": 12,
    "delivery.arena.pages": 30,
    "delivery.arena.send": 12,
    "delivery.batch.send": 400,
    "delivery.batch.sent": 400,
    "delivery.consumer.closed": 3,
    "delivery.release": 400,
    "delivery.slot.committed": 400,
    "delivery.slot.loaned": 400,
    "session.keep": 3,
    "session.swap.commit": 1,
    "session.swap.committed": 1,
    "session.swap.told": 4,
    "source.file.open": 800,
    "source.file.read": 800,
    "source.listing.write": 1,
    "store.commit": 6,
}


def draw(
    seed: int,
    seconds: float,
    counts: dict[Blow, int],
    jobs: int,
    ranks: int,
    failpoints: bool = False,
) -> list[Event]:
    random_ = random.Random(seed)
    blows = [blow for blow in Blow for _ in range(counts.get(blow, 0))]
    random_.shuffle(blows)
    # Evenly spread with jitter: two in the same moment happen, long silences do not.
    share = seconds / max(1, len(blows))
    events = []
    for index, blow in enumerate(blows):
        # Three, as a daemon may not live to see one of them. Early hits are the likelier ones for the
        # same reason.
        armed = [
            f"{point}=kill@{int(FAILPOINTS[point] ** random_.random())}"
            for point in random_.sample(sorted(FAILPOINTS), 3)
        ]
        events.append(
            Event(
                at_s=max(0.0, (index + random_.uniform(0.1, 1.4)) * share),
                blow=blow,
                job=random_.randrange(jobs),
                rank=random_.randrange(ranks),
                lasts_s=random_.choice([0.0, 0.02, 0.1, 0.3, 1.0]),
                swap_at=random_.choice(
                    ["now", "next-epoch", f"step:+{random_.randint(1, 2)}/{random_.randint(0, 5)}"]
                ),
                draw=random_.randrange(1 << 16) if blow is Blow.KILL_RUNNER else 0,
                failpoints=";".join(armed) if failpoints else "",
            )
        )
    return sorted(events, key=lambda event: event.at_s)

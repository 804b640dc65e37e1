"""The schedule of faults, by seed. Pure."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    """A kind of fault."""

    KILL = "kill"
    """SIGKILL; started again after a while."""
    STOP = "stop"
    """SIGSTOP; goes on after a while."""
    RESTART = "restart"
    """SIGTERM; started again once it has ended."""
    DELAY = "delay"
    THROTTLE = "throttle"
    DROP = "drop"
    HALF_OPEN = "half_open"
    RESET = "reset"
    REFUSE = "refuse"
    LIMIT = "limit"
    FORGET = "forget"


PROCESS_KINDS = {Kind.STOP: 70, Kind.KILL: 20, Kind.RESTART: 10}
"""What is done to a process, with its weight: a start costs seconds of a core, a stop nothing."""
STOPS = {Kind.STOP: 1}
"""For runs whose processes are to live to the end."""
WAY_KINDS = {
    Kind.RESET: 3,
    Kind.DROP: 2,
    Kind.HALF_OPEN: 2,
    Kind.DELAY: 2,
    Kind.THROTTLE: 1,
    Kind.LIMIT: 2,
    Kind.REFUSE: 1,
    Kind.FORGET: 1,
}
"""What is done to the way to a process, with its weight."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One fault."""

    kind: Kind
    pause_seconds: float
    """Seconds without a fault before it."""
    seconds: float
    """How long it lasts; for a kill, the time until the process is restarted."""
    amount: float
    """In [0, 1): the severity, for kinds that have degrees."""


def events(seed: int, victim: str, kinds: dict[Kind, int], mean_pause: float, longest: float = 4.0) -> Iterator[Event]:
    """Without end: each kind once in some order, then by weight; none takes more than `longest` seconds.

    Each victim has its own sequence, which depends on nothing that happens.
    """
    random = Random(f"{seed} {victim}")
    names, weights = list(kinds), list(kinds.values())
    first = random.sample(names, len(names))
    for count in itertools.count():
        yield Event(
            kind=first[count] if count < len(first) else random.choices(names, weights)[0],
            pause_seconds=min(random.expovariate(1 / mean_pause), 4 * mean_pause),
            seconds=random.uniform(0.2, longest),
            amount=random.random(),
        )

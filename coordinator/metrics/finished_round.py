"""What the metrics read of a round."""

from enum import StrEnum
from typing import Protocol

from specpair.options import Drafter, Rule


class RoundKind(StrEnum):
    """Whether a round had proposals, and if not, why."""

    DRAFT = "draft"
    PLAIN = "plain"
    """None were wanted, or the drafter had none."""
    FALLBACK = "fallback"
    """The draft failed."""


class FinishedRound(Protocol):
    """A round after an output's first token, judged. Times are in seconds."""

    @property
    def kind(self) -> RoundKind: ...
    @property
    def drafter(self) -> Drafter | None:
        """What was asked for proposals; None if nothing was."""
        ...

    @property
    def rule(self) -> Rule: ...
    @property
    def drafted_count(self) -> int: ...
    @property
    def accepted_count(self) -> int: ...
    @property
    def elapsed(self) -> float:
        """All of the round, proposal and verification."""
        ...

    @property
    def draft_compute(self) -> float | None:
        """Of the drafter's computation; None if there was no answer."""
        ...

    @property
    def verify_compute(self) -> float:
        """Of the target's computation."""
        ...

    @property
    def network_time(self) -> float:
        """Of both calls, less computation and rollback: the way and the queues."""
        ...

    @property
    def rollback_time(self) -> float:
        """What both caches took to drop tokens that earlier rounds rejected."""
        ...

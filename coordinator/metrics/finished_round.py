"""What the metrics read of a round; coordinator/outputs/round.py documents each field."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from coordinator.adaptive.ahead_outcome import AheadOutcome
from specpair.options import Drafter, Rule


class RoundKind(StrEnum):
    """Whether a round had proposals, and if not, why."""

    DRAFT = "draft"
    PLAIN = "plain"
    """None were asked for, or the drafter had none."""
    FALLBACK = "fallback"
    """The draft failed."""


class FinishedShare(Protocol):
    """What one of several drafts gave to a proposal."""

    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> Sequence[int]: ...
    @property
    def is_late(self) -> bool: ...


class FinishedRound(Protocol):
    """A judged round after an output's first token. Times are in seconds."""

    @property
    def kind(self) -> RoundKind: ...
    @property
    def drafter(self) -> Drafter | None: ...
    @property
    def rule(self) -> Rule: ...
    @property
    def drafted_count(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def accepted_count(self) -> int: ...
    @property
    def elapsed(self) -> float: ...
    @property
    def draft_compute(self) -> float | None: ...
    @property
    def verify_compute(self) -> float: ...
    @property
    def network_time(self) -> float: ...
    @property
    def rollback_time(self) -> float: ...
    @property
    def ahead(self) -> AheadOutcome | None: ...
    @property
    def accepted_before(self) -> int: ...
    @property
    def hidden_time(self) -> float: ...
    @property
    def is_tree(self) -> bool: ...
    @property
    def path(self) -> Sequence[int]: ...
    @property
    def shares(self) -> Sequence[FinishedShare]: ...

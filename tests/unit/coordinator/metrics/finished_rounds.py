"""Rounds as the metrics read them."""

from dataclasses import dataclass

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.metrics import RoundKind
from coordinator.peers import DraftShare
from specpair.options import Drafter, Rule


@dataclass(frozen=True, kw_only=True)
class MadeRound:
    """One with proposals, unless it is told otherwise."""

    kind: RoundKind = RoundKind.DRAFT
    drafter: Drafter | None = Drafter.NGRAM
    rule: Rule = Rule.TOKEN
    drafted_count: int = 4
    accepted_count: int = 3
    elapsed: float = 0.0035
    draft_compute: float | None = 0.001
    verify_compute: float = 0.002
    network_time: float = 0.0005
    rollback_time: float = 0.000001
    ahead: AheadOutcome | None = None
    accepted_before: int = 0
    hidden_time: float = 0.0
    is_tree: bool = False
    path: tuple[int, ...] = ()
    shares: tuple[DraftShare, ...] = ()

    @property
    def depth(self) -> int:
        return self.drafted_count

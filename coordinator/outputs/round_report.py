"""A report of one round for clients: plain numbers that keep no message alive."""

from dataclasses import dataclass

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.outputs.round import Round
from coordinator.peers import CallTimes, DraftShare


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """The proposed tokens, their probabilities in both models, and the times of the calls."""

    step: int
    arrival: float
    """When the request arrived, by time.perf_counter as all moments here."""
    token_ids: tuple[int, ...]
    """Proposed tokens."""
    parents: tuple[int, ...]
    """For a tree, the index of each one's parent, -1 for the last committed token. Empty for a chain."""
    path: tuple[int, ...]
    """Indices of the accepted tokens."""
    target_probabilities: tuple[float, ...]
    """Of the proposed tokens; empty if the target sent none."""
    draft_probabilities: tuple[float, ...]
    """Of the proposed tokens; also empty if the draft sent no distributions."""
    draft: CallTimes | None
    """None without a proposed token."""
    verify: CallTimes
    batch_token_count: int
    ahead: AheadOutcome | None
    """What working ahead gave; None if the draft was not working ahead."""
    shares: tuple[DraftShare, ...] = ()
    """What each of several drafts proposed."""

    @classmethod
    def of(cls, judged: Round, arrival: float) -> "RoundReport":
        """The report of a round that has its verdict."""
        proposed, verdict = judged.proposed, judged.judged
        return cls(
            step=judged.step,
            arrival=arrival,
            token_ids=tuple(judged.token_ids),
            parents=tuple(judged.parents),
            path=verdict.path,
            target_probabilities=tuple(verdict.target_probabilities),
            draft_probabilities=tuple(verdict.draft_probabilities),
            draft=proposed.times if proposed is not None and judged.drafted_count else None,
            verify=verdict.times_alone,
            batch_token_count=verdict.batch_token_count,
            ahead=judged.ahead,
            shares=tuple(judged.shares),
        )

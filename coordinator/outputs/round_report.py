"""How one round went, for those who want to see it: plain numbers, which hold on to no message."""

from dataclasses import dataclass

from coordinator.outputs.round import Round
from coordinator.peers import CallTimes


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What was proposed, how likely both models found it, and when each was at work."""

    step: int
    arrival: float
    """When the request came in, by time.perf_counter as all moments are."""
    token_ids: tuple[int, ...]
    """Proposed tokens."""
    path: tuple[int, ...]
    """Which of them were accepted."""
    target_probabilities: tuple[float, ...]
    """Of the proposed tokens; empty if the target did not say."""
    draft_probabilities: tuple[float, ...]
    """The same; empty, too, where no distributions were sent."""
    draft: CallTimes | None
    """None without a proposed token."""
    verify: CallTimes
    batch_token_count: int

    @classmethod
    def of(cls, judged: Round, arrival: float) -> "RoundReport":
        """Of a round that has its verdict."""
        proposed, verdict = judged.proposed, judged.judged
        return cls(
            step=judged.step,
            arrival=arrival,
            token_ids=tuple(judged.token_ids),
            path=verdict.path,
            target_probabilities=tuple(verdict.target_probabilities),
            draft_probabilities=tuple(verdict.draft_probabilities),
            draft=proposed.times if proposed is not None and judged.drafted_count else None,
            verify=verdict.times,
            batch_token_count=verdict.batch_token_count,
        )

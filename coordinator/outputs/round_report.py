"""How one round went, for those who want to see it: plain numbers, which hold on to no message."""

from dataclasses import dataclass
from typing import NamedTuple

from coordinator.peers import Proposed, Verdict


class CallTimes(NamedTuple):
    """One call to a service, as seen from here. In microseconds."""

    start: int
    """From the request's arrival to the call."""
    elapsed: int
    queue: int
    compute: int

    @classmethod
    def of(cls, call: Proposed | Verdict, arrival: float) -> "CallTimes":
        """`arrival` is a reading of time.perf_counter."""
        start = max(round((call.started_at - arrival) * 1e6), 0)
        return cls(start, call.elapsed_us, call.queue_time_us, call.compute_time_us)


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What was proposed, how likely both models found it, and when each was at work."""

    step: int
    token_ids: tuple[int, ...]
    """Proposed tokens."""
    accepted_count: int
    target_probabilities: tuple[float, ...]
    """Of the proposed tokens; empty if the target did not say."""
    draft_probabilities: tuple[float, ...]
    """The same; empty, too, where no distributions were sent."""
    draft: CallTimes | None
    verify: CallTimes
    batch_token_count: int

    @classmethod
    def of(cls, step: int, proposed: Proposed | None, verdict: Verdict, arrival: float) -> "RoundReport":
        """`arrival` is the time.perf_counter at which the request came in."""
        return cls(
            step=step,
            token_ids=() if proposed is None else tuple(proposed.token_ids),
            accepted_count=verdict.accepted_count,
            target_probabilities=tuple(verdict.target_probabilities),
            draft_probabilities=tuple(verdict.draft_probabilities),
            draft=None if proposed is None else CallTimes.of(proposed, arrival),
            verify=CallTimes.of(verdict, arrival),
            batch_token_count=verdict.batch_token_count,
        )

"""One round: what was asked, what was answered, how it was judged, and how long each took."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.adaptive import RoundOutcome
from coordinator.metrics import RoundKind
from coordinator.peers import Proposed, Verdict
from specpair.options import Drafter, Rule

LONGEST_PAUSE = 0.001
"""Seconds between two rounds of an output; more is its client's doing."""
SHORTEST_SPAN = 1e-6


@dataclass(kw_only=True, slots=True, eq=False)
class Round:
    """It is filled in as it goes on, and holds all that is known of it: several of one output may be under way.

    Times are in seconds, moments by time.perf_counter.
    """

    step: int
    rule: Rule
    asked_count: int = 0
    """Tokens that the draft was to be asked for; 0 in a plain round."""
    drafter: Drafter | None = None
    """What the output asked for proposals last; None if it never did, or nobody knows what the draft chose."""
    min_confidence: float = 0.0
    answer: Proposed | None = None
    """What the draft answered, used or not; None if it was not asked, or failed."""
    proposed: Proposed | None = None
    """The same, unless it was no good; it may hold no token."""
    token_ids: Sequence[int] = ()
    """The tokens that are judged."""
    drafted_count: int = 0
    is_refused: bool = False
    """Whether the answer was no good."""
    has_failed: bool = False
    """Whether the draft failed, or could not be asked when it was to be."""
    verdict: Verdict | None = None
    """None until the target has judged."""
    began_at: float = 0.0
    verified_at: float = 0.0
    """When verification began."""
    ended_at: float = 0.0
    followed_at: float = 0.0
    """When the round before it ended; known at its own end."""
    activity_before: float = 0.0
    """The integral of the outputs that waited for the draft, when verification began."""
    draft_company: float = 0.0
    """Their mean number while this round was verified."""

    def take(self, answer: Proposed | None) -> None:
        """The draft answered, or failed."""
        self.answer = self.proposed = answer
        self.has_failed = answer is None
        self.token_ids = () if answer is None else answer.token_ids
        self.drafted_count = len(self.token_ids)

    def refuse(self) -> None:
        """The proposal is no good: the round goes without."""
        self.is_refused, self.proposed, self.token_ids, self.drafted_count = True, None, (), 0

    def end(self, verdict: Verdict, now: float, followed_at: float, activity: float) -> None:
        """It is judged. `activity` is the integral of the outputs that waited for the draft, by now."""
        self.verdict, self.ended_at, self.followed_at = verdict, now, followed_at
        self.draft_company = (activity - self.activity_before) / max(now - self.verified_at, SHORTEST_SPAN)

    @property
    def has_fallen_back(self) -> bool:
        """Whether it went without the tokens that were wanted."""
        return self.has_failed or self.is_refused

    @property
    def is_usual(self) -> bool:
        """Whether it says what such a round costs: not if a sequence was opened in it, or a call failed."""
        return not self.has_fallen_back and (self.answer is None or self.answer.is_usual)

    @property
    def kind(self) -> RoundKind:
        if self.drafted_count:
            return RoundKind.DRAFT
        return RoundKind.FALLBACK if self.has_fallen_back else RoundKind.PLAIN

    @property
    def accepted_count(self) -> int:
        return len(self.judged.path)

    @property
    def judged(self) -> Verdict:
        """The verdict of a round that has one."""
        assert self.verdict is not None
        return self.verdict

    @property
    def period(self) -> float:
        """From the end of the round before to the end of this one."""
        return self.ended_at - self.followed_at

    @property
    def elapsed(self) -> float:
        """The same without what its client made it wait. A round that began before the other's end has no pause."""
        pause = max(self.began_at - self.followed_at, 0.0)
        return self.period - pause + min(pause, LONGEST_PAUSE)

    @property
    def draft_compute(self) -> float | None:
        """Of the drafter's computation; None without an answer that was of use."""
        return None if self.proposed is None else self.proposed.times.compute

    @property
    def verify_compute(self) -> float:
        return self.judged.times.compute

    @property
    def rollback_time(self) -> float:
        """What both caches took to drop tokens that earlier rounds rejected."""
        return self.judged.times.rollback + (0.0 if self.proposed is None else self.proposed.times.rollback)

    @property
    def network_time(self) -> float:
        """Of both calls, less computation and rollback: the way and the queues."""
        outside = self.judged.times.outside + (0.0 if self.proposed is None else self.proposed.times.outside)
        return max(outside - self.rollback_time, 0.0)


def outcome_of(ended: Round) -> RoundOutcome:
    """What those who decide about the next round may know of this one: counts and times, in microseconds."""
    times = None if ended.proposed is None else ended.proposed.times
    return RoundOutcome(
        asked=0 if times is None else ended.asked_count,
        drafted=ended.drafted_count,
        accepted=ended.accepted_count,
        elapsed=ended.elapsed * 1e6,
        period=ended.period * 1e6,
        draft_elapsed=0.0 if times is None else times.elapsed * 1e6,
        draft_compute=0.0 if times is None else times.compute * 1e6,
        verify_compute=ended.verify_compute * 1e6,
        batch_token_count=ended.judged.batch_token_count,
        draft_company=ended.draft_company,
        is_usual=ended.is_usual,
    )

"""One round: what was asked, what was answered, how it was judged, and how long each took."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.metrics import RoundKind
from coordinator.peers import CallTimes, Proposed, Verdict
from specpair.options import Drafter, Rule

LONGEST_PAUSE = 0.001
"""Seconds between two rounds of an output; more is its client's doing."""


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
    # What follows is known at its end.
    ended_at: float = 0.0
    accepted_count: int = 0
    period: float = 0.0
    """From the end of the round before to the end of this one."""
    elapsed: float = 0.0
    """The same without what its client made it wait."""
    draft_compute: float | None = None
    """Of the drafter's computation; None without an answer that was of use."""
    verify_compute: float = 0.0
    network_time: float = 0.0
    """Of both calls, less computation and rollback: the way and the queues."""
    rollback_time: float = 0.0
    """What both caches took to drop tokens that earlier rounds rejected."""

    def take(self, answer: Proposed | None) -> None:
        """The draft answered, or failed."""
        self.answer = self.proposed = answer
        self.has_failed = answer is None
        self.token_ids = () if answer is None else answer.token_ids
        self.drafted_count = len(self.token_ids)

    def refuse(self) -> None:
        """The proposal is no good: the round goes without."""
        self.is_refused, self.proposed, self.token_ids, self.drafted_count = True, None, (), 0

    def end(self, verdict: Verdict, now: float, followed_at: float) -> None:
        """It is judged, and the round before it ended at `followed_at`: since then it counts."""
        self.verdict, self.ended_at, self.accepted_count = verdict, now, len(verdict.path)
        pause = self.began_at - followed_at
        self.period = now - followed_at
        self.elapsed = self.period - pause + min(pause, LONGEST_PAUSE)
        self._add_up(None if self.proposed is None else self.proposed.times, verdict.times)

    def _add_up(self, draft: CallTimes | None, verify: CallTimes) -> None:
        """The parts of its time."""
        self.verify_compute, self.rollback_time, outside = verify.compute, verify.rollback, verify.outside
        if draft is not None:
            self.draft_compute = draft.compute
            self.rollback_time += draft.rollback
            outside += draft.outside
        self.network_time = max(outside - self.rollback_time, 0.0)

    @property
    def asked(self) -> int:
        """Tokens that the draft was asked for, if its answer was of use; 0 otherwise."""
        return 0 if self.proposed is None else self.asked_count

    @property
    def draft_elapsed(self) -> float:
        """From the call to the draft to its answer; 0 without one that was of use."""
        return 0.0 if self.proposed is None else self.proposed.times.elapsed

    @property
    def batch_token_count(self) -> int:
        """Tokens in the target's forward pass, those of other outputs included."""
        return self.judged.batch_token_count

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
    def judged(self) -> Verdict:
        """The verdict of a round that has one."""
        assert self.verdict is not None
        return self.verdict

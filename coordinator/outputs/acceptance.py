"""Statistics of speculation for one output."""

from dataclasses import dataclass, field

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.outputs.round import Round
from coordinator.peers.answers import GuessCounts


@dataclass(kw_only=True)
class DraftCounts:
    """What one of several drafts did."""

    draft_round_count: int = 0
    """Rounds in which it proposed tokens."""
    draft_token_count: int = 0
    accepted_token_count: int = 0
    late_count: int = 0
    """Rounds that did not wait for it."""


@dataclass(kw_only=True)
class Acceptance:
    """Counts and times of the rounds after the first token. Times are in seconds."""

    round_count: int = 0
    """Rounds, those without proposals included."""
    draft_round_count: int = 0
    """Rounds that had proposals."""
    draft_token_count: int = 0
    accepted_token_count: int = 0
    drafted_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)
    fallback_count: int = 0
    """Rounds without a proposal because the draft failed."""
    ahead_counts: dict[AheadOutcome, int] = field(default_factory=lambda: dict.fromkeys(AheadOutcome, 0))
    """Rounds by what working ahead gave, if the draft was working ahead."""
    by_draft: dict[str, DraftCounts] = field(default_factory=dict)
    """Of several drafts, by name."""
    forced_token_count: int = 0
    """Tokens of the output that its structured output forced: neither proposed nor judged. Those after the first token
    count as well."""
    guesses: GuessCounts | None = None
    """What was guessed for the draft's model; None if it is not accelerated."""
    draft_time: float = 0.0
    verify_time: float = 0.0
    network_time: float = 0.0

    def add(self, ended: Round) -> None:
        """One round, with or without proposals. Each pass of a run counts as a round."""
        self.round_count += ended.pass_count
        self.fallback_count += ended.has_fallen_back
        if ended.ahead is not None:
            self.ahead_counts[ended.ahead] += 1
        self._add_times(ended)
        self._add_shares(ended)
        if ended.answer is not None and ended.answer.guesses is not None:
            self.guesses = ended.answer.guesses.plus(self.guesses or GuessCounts())
        first, *later = ended.passes() if ended.judged.run_counts else [ended]
        self._add_proposal(first)
        for one in later:
            self._add_proposal(one)
            self.draft_time += one.draft_compute or 0.0

    def _add_proposal(self, ended: Round) -> None:
        drafted_count, accepted_count = ended.drafted_count, ended.accepted_count
        if not drafted_count:
            return
        self.draft_round_count += 1
        self.draft_token_count += drafted_count
        self.accepted_token_count += accepted_count
        _count_positions(self.drafted_per_position, ended.depth)
        _count_positions(self.accepted_per_position, accepted_count, length=len(self.drafted_per_position))

    def add_steps(self, proposed_count: int, accepted_count: int) -> None:
        """One pass of a beam search, with candidates for so many steps; the times are added elsewhere."""
        self.round_count += 1
        if proposed_count:
            self.draft_round_count += 1
            self.draft_token_count += proposed_count
            self.accepted_token_count += accepted_count
            _count_positions(self.drafted_per_position, proposed_count)
            _count_positions(self.accepted_per_position, accepted_count, length=len(self.drafted_per_position))

    def _add_shares(self, ended: Round) -> None:
        """Counts a merged proposal for each of its drafts."""
        path = frozenset(ended.judged.path)
        for share in ended.shares:
            counts = self.by_draft.setdefault(share.name, DraftCounts())
            counts.draft_round_count += bool(share.nodes)
            counts.draft_token_count += len(share.nodes)
            counts.accepted_token_count += len(path.intersection(share.nodes))
            counts.late_count += share.is_late

    def _add_times(self, ended: Round) -> None:
        """Adds the times of both calls, even if the draft's answer was invalid, without what the draft did ahead."""
        self.verify_time += ended.verify_compute
        self.network_time += ended.judged.times.outside
        if ended.answer is not None:
            self.draft_time += ended.answer.waited_compute
            self.network_time += ended.answer.times.outside

    @property
    def acceptance_rate(self) -> float:
        """Accepted per proposed token; 0 without proposals."""
        return self.accepted_token_count / self.draft_token_count if self.draft_token_count else 0.0

    def tokens_per_round(self, completion_token_count: int) -> float:
        """Output tokens per round, the first token left out; 0 without rounds. A beam search that did not end has
        rounds and no tokens."""
        return max(completion_token_count - 1, 0) / self.round_count if self.round_count else 0.0


def _count_positions(counts: list[int], reached: int, length: int = 0) -> None:
    """Adds one to each position below `reached`; the list grows to at least `length`."""
    counts.extend([0] * (max(reached, length) - len(counts)))
    for position in range(reached):
        counts[position] += 1

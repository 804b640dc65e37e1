"""One round: what was asked for, the answer, the verdict, and how long each took."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.metrics import RoundKind
from coordinator.peers import NO_ORDER, DraftShare, OwnOrder, Proposed, RunCounts, Verdict, time_until_now
from specpair.options import Drafter, Rule
from specpair.v1.proposal_pb2 import Proposal

LONGEST_PAUSE = 0.001
"""Seconds between two rounds of an output; a longer pause is caused by the client."""


@dataclass(kw_only=True, slots=True, eq=False)
class Round:
    """All state of one round, filled in as it proceeds; an output may have several rounds under way.

    Times are in seconds, moments by time.perf_counter.
    """

    step: int
    """The first one of a run."""
    rule: Rule
    asked_count: int = 0
    """Tokens to ask the draft for; 0 in a plain round."""
    drafter: Drafter | None = None
    """The drafter that the output asked last; None if it asked none, or the draft's choice is unknown."""
    prepared_count: int = 0
    """Tokens of each proposal that the draft prepares for the next round; 0 if it does not work ahead."""
    order: OwnOrder = NO_ORDER
    """What the target itself shall propose for the next round, or the run that it shall give."""
    following_order: OwnOrder | None = None
    """The order of the next round, if that is known to have no proposal of a draft; else None."""
    accepted_before: int = 0
    """Tokens that the round before accepted."""
    proposing_before: float = 0.0
    """Seconds that a head of the target took for its proposal, at the end of the round before."""
    answer: Proposed | None = None
    """The draft's answer, used or not; None if it was not asked or failed."""
    proposed: Proposed | None = None
    """The same, unless it was invalid; it may hold no token."""
    token_ids: Sequence[int] = ()
    """The proposed tokens to judge."""
    parents: Sequence[int] = ()
    """For a tree, the index of each one's parent, -1 for the last committed token. Empty for a chain, and for a tree in
    a later round of a run, of which only the size is known."""
    is_tree: bool = False
    """Whether the proposal is a tree."""
    drafted_count: int = 0
    depth: int = 0
    """Proposed tokens of which all could be accepted: those of the longest path."""
    is_refused: bool = False
    """Whether the answer was invalid."""
    is_opening: bool = False
    """Whether it is a single token where there would be a run, since the draft is being opened."""
    is_passed_over: bool = False
    """Whether the target began with it, without a proposal, before the draft had one."""
    has_failed: bool = False
    """Whether the draft failed or could not be asked."""
    verdict: Verdict | None = None
    """None until the target has answered."""
    pass_count: int = 1
    """Passes that gave tokens of the output: of a run there may be several."""
    began_at: float = 0.0
    # The fields below are set at its end.
    ended_at: float = 0.0
    accepted_count: int = 0
    period: float = 0.0
    """From the end of the previous round to the end of this one."""
    elapsed: float = 0.0
    """The same without the time spent waiting for the client. What a head of the target takes to propose is time of the
    round that judges it, though it is spent in the one before."""
    draft_compute: float | None = None
    """The drafter's computation time for which it waited; None without a usable answer."""
    verify_compute: float = 0.0
    network_time: float = 0.0
    """Time of both calls without computation and rollback: network and queues."""
    rollback_time: float = 0.0
    """Time that both caches took to drop tokens that earlier rounds rejected."""

    def take(self, answer: Proposed | None) -> None:
        """Takes the draft's answer; None if it failed."""
        self.answer = self.proposed = answer
        self.has_failed = answer is None
        self.token_ids = () if answer is None else answer.token_ids
        self.parents = () if answer is None else answer.parents
        self.is_tree = len(self.parents) > 0
        self.drafted_count = len(self.token_ids)
        self.depth = 0 if answer is None else answer.depth

    def refuse(self) -> None:
        """Drops an invalid proposal: the round has none."""
        self.is_refused, self.proposed = True, None
        self.token_ids, self.parents, self.is_tree, self.drafted_count, self.depth = (), (), False, 0, 0

    def end(self, verdict: Verdict, now: float, followed_at: float) -> None:
        """Sets verdict and times. The previous round ended at `followed_at`: this one's time counts from then."""
        self.verdict, self.ended_at, self.accepted_count = verdict, now, len(verdict.path)
        pause = self.began_at - followed_at
        self.period = now - followed_at
        elapsed = self.period - pause + min(pause, LONGEST_PAUSE)
        for_next = verdict.proposing_time if self.order.count else 0.0  # else it waited for a proposal of others
        self.elapsed = max(elapsed - for_next, 0.0) + self.proposing_before
        if self.proposed is not None and self.proposed.asked_for is not None:
            waited = max(self.proposed.asked_for - verdict.begun_before, 0.0)
            self.answer = self.proposed = replace(self.proposed, waited=waited)
        self._add_up(self.proposed, verdict)

    @property
    def _proposing_share(self) -> float:
        """What a head took in each round of a run to propose for the one after it."""
        return self.judged.proposing_share if self.order.count else 0.0

    @property
    def most_tokens(self) -> int:
        """Tokens that it gives at most, with all of its run."""
        return self.order.most_tokens(self.depth)

    def passes(self) -> list["Round"]:
        """The passes of a run that gave tokens of the output, each counted as a round with its share of the times; else
        this round alone."""
        count = self.judged.pass_count
        if count == 1:
            return [self]
        own, before = (self.elapsed - self.proposing_before) / count, self.proposing_before
        share = replace(
            self,
            period=self.period / count,
            elapsed=own + before,
            verify_compute=self.verify_compute / count,
            network_time=self.network_time / count,
            rollback_time=self.rollback_time / count,
            pass_count=1,
        )
        if not (self.judged.run_counts or self.proposed or before or self.is_refused):
            return [share] * self.pass_count
        later = replace(share, elapsed=own + self._proposing_share)
        return [share, *(later._judged_in_run(counts) for counts in self.judged.run_rounds[: self.pass_count - 1])]

    def _judged_in_run(self, counts: RunCounts) -> "Round":
        """A later round of the same run. A proposal that was refused is that of the first one."""
        times = time_until_now(self._proposing_share)
        proposed = Proposed(proposal=Proposal(), times=times) if counts.proposed_count else None
        return replace(
            self,
            asked_count=self.order.count,
            answer=proposed,
            proposed=proposed,
            is_refused=False,
            token_ids=(),
            parents=(),
            is_tree=counts.tree_token_count > 0,
            draft_compute=None if proposed is None else times.compute,
            drafted_count=counts.proposed_count,
            depth=counts.depth,
            accepted_count=counts.accepted_count,
            verdict=replace(self.judged, path=tuple(range(counts.accepted_count)), run_ids=(), run_counts=()),
        )

    def _add_up(self, proposed: Proposed | None, verdict: Verdict) -> None:
        """Adds up the parts of its time; what the draft computed before it is none of them."""
        verify = verdict.times
        self.verify_compute = verify.compute - verdict.proposing_time
        self.rollback_time, outside = verify.rollback, verify.outside
        if proposed is not None:
            self.draft_compute = proposed.waited_compute
            self.rollback_time += proposed.times.rollback
            outside += proposed.times.outside
        self.network_time = max(outside - self.rollback_time, 0.0)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was proposed after the accepted tokens, so that the next one is a bonus. Not for later rounds
        of a run, whose counts say it."""
        path = self.judged.path
        if not self.parents:
            return len(path) == self.drafted_count
        return (path[-1] if path else -1) not in self.parents

    @property
    def ahead(self) -> AheadOutcome | None:
        """What working ahead gave; None without a usable proposal, or if the draft was not working ahead."""
        if self.is_passed_over:
            return AheadOutcome.PLAIN
        return None if self.proposed is None else self.proposed.ahead

    @property
    def works_ahead(self) -> bool:
        """Whether the draft works ahead while the target judges it."""
        return self.prepared_count > 0

    @property
    def path(self) -> Sequence[int]:
        """The accepted tokens, as indices into the proposed ones."""
        return self.judged.path

    @property
    def shares(self) -> Sequence[DraftShare]:
        """What each of several drafts gave to its proposal; none with one draft."""
        return () if self.proposed is None else self.proposed.shares

    @property
    def hidden_time(self) -> float:
        """Seconds of the draft's computation for which the round did not wait."""
        return 0.0 if self.proposed is None else self.proposed.hidden

    @property
    def asked(self) -> int:
        """Tokens that the draft was asked for, if its answer was usable; else 0."""
        return 0 if self.proposed is None else self.asked_count

    @property
    def draft_elapsed(self) -> float:
        """How long the round waited for its proposal; 0 without a usable answer."""
        return 0.0 if self.proposed is None else self.proposed.waiting

    @property
    def draft_way(self) -> float:
        """Seconds of the call to the draft without what it computed; 0 without a usable answer."""
        return 0.0 if self.proposed is None else self.proposed.times.outside

    @property
    def asked_for(self) -> float | None:
        """Seconds of the call for the distributions of a proposal whose tokens had come before."""
        return None if self.proposed is None else self.proposed.asked_for

    @property
    def begun_before(self) -> float:
        """Seconds for which the target had worked on it before it was called."""
        return self.judged.begun_before

    @property
    def batch_token_count(self) -> int:
        """Tokens in the target's forward pass, those of other outputs included."""
        return self.judged.batch_token_count

    @property
    def has_fallen_back(self) -> bool:
        """Whether it is a fallback: tokens were to be proposed, but the draft failed or its proposal was invalid."""
        return self.has_failed or self.is_refused

    @property
    def is_usual(self) -> bool:
        """Whether its times are typical: no sequence was opened in it and no call failed."""
        is_usual = self.answer is None or self.answer.is_usual
        return is_usual and not self.has_fallen_back and not self.is_opening

    @property
    def kind(self) -> RoundKind:
        if self.drafted_count:
            return RoundKind.DRAFT
        return RoundKind.FALLBACK if self.has_fallen_back else RoundKind.PLAIN

    @property
    def facts(self) -> dict[str, int | str]:
        """What a trace says of it, once it is judged. Of a run also the target's passes: it is not one long pass."""
        run = self.judged.run_counts
        facts: dict[str, int | str] = {
            "proposed": self.drafted_count + sum(one.proposed_count for one in run),
            "accepted": self.judged.accepted_count + sum(one.accepted_count for one in run),
        }
        if self.judged.run_ids:
            facts["passes"] = self.judged.pass_count
        if self.ahead is not None:
            facts["ahead"] = self.ahead.value
        return facts

    @property
    def judged(self) -> Verdict:
        """The verdict of a round that has one."""
        assert self.verdict is not None
        return self.verdict

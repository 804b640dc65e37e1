"""The proposals of one output: how many tokens to ask for, the draft's answers, and what came of them."""

import time
from collections.abc import Sequence

from coordinator.adaptive import Decision, OutputLength, RoundOutcome
from coordinator.metrics import MeasuredRound, RoundKind, RoundSample
from coordinator.outputs.acceptance import Acceptance
from coordinator.pair import Pair
from coordinator.peers import DraftSession, Proposed, Verdict
from coordinator.request import GenerationRequest
from specpair.errors import InvalidDistributionError, SpecpairError
from specpair.options import Drafter
from specpair.rpc.sizes import MAX_MESSAGE_BYTES

MAX_PROPOSAL_BYTES = MAX_MESSAGE_BYTES - 64 * 1024
"""What the target is sent of the draft's; the rest of its message has room beside it."""
LONGEST_PAUSE = 0.001
"""Seconds between two rounds of an output; more is its client's doing."""


class Proposals:
    """Asks the draft, if there is one, for as many tokens as are wanted or pay, and counts the rounds.

    How many depends on the rounds before: on how many tokens were accepted and how long it all took, never on which.
    """

    def __init__(self, request: GenerationRequest, pair: Pair, draft: DraftSession | None):
        self.acceptance = Acceptance()
        self.asked_drafter: Drafter | None = None
        """What was asked last; None before that."""
        self._request = request
        self._pair = pair
        self._draft = draft
        self._length: OutputLength | None = None
        """None before `begin`."""
        self._asked = 0
        """Tokens that the draft was asked for in this round, and has answered."""
        self._answer: Proposed | None = None
        self._is_usual = True
        self._fell_back = False
        """Whether the draft failed in this round."""
        self._round_start = time.perf_counter()
        self._begin_time = self._round_start
        self._verify_start = self._round_start
        self._activity = 0.0

    @property
    def is_adaptive(self) -> bool:
        """Whether their number is decided anew for each round."""
        return self._request.num_speculative_tokens is None and self._draft is not None

    @property
    def drafter(self) -> Drafter | None:
        """What is asked; None without a draft, or while nobody knows what it would choose itself."""
        link = self._pair.draft
        return None if link is None else self._request.drafter or link.own_drafter

    def begin(self, history: Sequence[int], longest: int, original: "Proposals | None" = None) -> None:
        """Joins the outputs under way, until `leave`.

        The draft reads the prompt while the target does, if tokens are going to be wanted.
        """
        request = self._request
        fixed = 0 if self._draft is None else request.num_speculative_tokens
        self._length = self._pair.lengths.enter(self.drafter, request.rule, request.sampling.temperature, fixed)
        if self._draft is None:
            return
        decision = self._length.decide(longest, backlog=len(history), is_ready=False)
        if decision.opens_draft or decision.length:
            self._draft.start(history, None if original is None else original._draft)

    def start_clock(self) -> None:
        """The first round that may have proposals begins."""
        self._round_start = time.perf_counter()

    async def next(self, step: int, history: Sequence[int], longest: int) -> Proposed | None:
        """At least one token, at most `longest`; None where none are wanted or none are to be had."""
        self._begin_time = time.perf_counter()
        self._asked, self._answer, self._is_usual, self._fell_back = 0, None, True, False
        decision = self._decide(history, longest)
        if decision.length and (answer := await self._ask(step, history, decision)) is not None:
            self._asked, self._answer = decision.length, answer
        self._verify_start = time.perf_counter()
        self._activity = self._pair.lengths.draft_activity.integral(self._verify_start)
        return self._answer if self._answer is not None and self._answer.token_ids else None

    def refuse(self, error: SpecpairError) -> None:
        """The proposal is no good: the round goes without, and the draft is left alone for a while."""
        assert self._draft is not None
        self._fall_back()
        self._asked, self._answer = 0, None
        self._draft.leave_alone(InvalidDistributionError("proposal", error.message))

    def add(self, drafted_count: int, verdict: Verdict) -> None:
        """The round is over: so many tokens were judged."""
        self.acceptance.add_round(drafted_count, verdict.accepted_count)
        self.acceptance.add_verify_time(verdict.compute_time_us, verdict.elapsed_us)
        self.acceptance.fallback_count += self._fell_back
        now = time.perf_counter()
        assert self._length is not None
        outcome = self._outcome(drafted_count, verdict, now)
        self._length.add(outcome)
        self._count(outcome, verdict, now)
        self._round_start = now

    def leave(self) -> None:
        """The output is over."""
        if self._length is not None:
            self._length.leave()

    def _decide(self, history: Sequence[int], longest: int) -> Decision:
        """What to ask for now. A draft that does not know the sequence begins to read it on the side."""
        assert self._length is not None
        if self._draft is None:
            return self._length.decide(0)
        decision = self._length.decide(
            longest, backlog=self._draft.backlog(len(history)), is_ready=self._draft.is_ready
        )
        if decision.opens_draft and not self._draft.start(history):
            self._fall_back()
        return decision

    async def _ask(self, step: int, history: Sequence[int], decision: Decision) -> Proposed | None:
        count = decision.length
        assert self._draft is not None
        self.asked_drafter = self.drafter or self.asked_drafter
        activity = self._pair.lengths.draft_activity
        activity.begin(time.perf_counter())
        try:
            answer = await self._draft.propose(step, history, count, decision.min_confidence)
        finally:
            activity.end(time.perf_counter())
        if answer is None:
            self._fall_back()
            return None
        self.acceptance.add_proposal_time(answer.compute_time_us, answer.elapsed_us)
        self._is_usual = self._draft.is_usual
        if (problem := _problem(answer, count)) is not None:
            self.refuse(problem)
            return None
        return answer

    def _fall_back(self) -> None:
        self._fell_back = True
        self._is_usual = False

    def _count(self, outcome: RoundOutcome, verdict: Verdict, now: float) -> None:
        """Tells the metrics of the round."""
        metrics, calls = self._pair.metrics, [call for call in (self._answer, verdict) if call is not None]
        rollback = sum(call.rollback_time_ns for call in calls) * 1e-9
        outside = sum(max(call.elapsed_us - call.compute_time_us, 0) for call in calls) * 1e-6
        metrics.rounds.add(
            RoundSample(
                kind=self._kind(outcome.drafted),
                drafter=self.asked_drafter,
                rule=self._request.rule,
                drafted_count=outcome.drafted,
                accepted_count=outcome.accepted,
                draft_time=None if self._answer is None else outcome.draft_compute * 1e-6,
                verify_time=outcome.verify_compute * 1e-6,
                network_time=max(outside - rollback, 0.0),
                rollback_time=rollback,
            )
        )
        assert self._length is not None
        metrics.speedup.add(
            MeasuredRound(
                drafted=outcome.drafted,
                accepted=outcome.accepted,
                elapsed=outcome.elapsed,
                plain_time=self._length.plain_time,
                draft_compute=outcome.draft_compute,
                verify_compute=outcome.verify_compute,
                is_speculating=self._draft is not None and self._request.num_speculative_tokens != 0,
            ),
            now,
        )

    def _kind(self, drafted_count: int) -> RoundKind:
        if drafted_count:
            return RoundKind.DRAFT
        return RoundKind.FALLBACK if self._fell_back else RoundKind.PLAIN

    def _outcome(self, drafted_count: int, verdict: Verdict, now: float) -> RoundOutcome:
        """What those who decide about the next round may know of this one."""
        answer = self._answer
        company = self._pair.lengths.draft_activity.integral(now) - self._activity
        # The pause before a round belongs to it, unless it is its client that is slow to read.
        pause = min(self._begin_time - self._round_start, LONGEST_PAUSE)
        return RoundOutcome(
            asked=self._asked,
            drafted=drafted_count,
            accepted=verdict.accepted_count,
            elapsed=(now - self._begin_time + pause) * 1e6,
            period=(now - self._round_start) * 1e6,
            draft_elapsed=0 if answer is None else answer.elapsed_us,
            draft_compute=0 if answer is None else answer.compute_time_us,
            verify_compute=verdict.compute_time_us,
            batch_token_count=verdict.batch_token_count,
            draft_company=company / max(now - self._verify_start, 1e-6),
            is_usual=self._is_usual,
        )


def _problem(answer: Proposed, count: int) -> SpecpairError | None:
    """Why the target is not even asked; None if it is."""
    if len(answer.token_ids) > count:
        return InvalidDistributionError("proposal", f"has more than {count} tokens", limit=count)
    if (size := answer.proposal.ByteSize()) > MAX_PROPOSAL_BYTES:
        return InvalidDistributionError("proposal", f"has {size} bytes", limit=MAX_PROPOSAL_BYTES)
    return None

"""The proposals of one output: how many tokens to ask for, the draft's answers, and what came of them."""

import time
from collections.abc import Sequence

from coordinator.adaptive import Decision, OutputLength
from coordinator.outputs.acceptance import Acceptance
from coordinator.outputs.round import Round
from coordinator.pair import Pair
from coordinator.peers import DraftSession, Proposed, Verdict
from coordinator.requests.request import GenerationRequest
from specpair.errors import InvalidDistributionError, SpecpairError
from specpair.options import Drafter
from specpair.rpc.sizes import MAX_MESSAGE_BYTES

MAX_PROPOSAL_BYTES = MAX_MESSAGE_BYTES - 64 * 1024
"""What the target is sent of the draft's; the rest of its message has room beside it."""


class Proposals:
    """Asks the draft, if there is one, for as many tokens as are wanted or pay, and counts the rounds.

    How many depends on the rounds before: on how many tokens were accepted and how long it all took, never on which.
    What belongs to a round is in the round: the next may begin before this one is judged, and they end in their order.
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
        self._latest_end = time.perf_counter()
        """Of the last round that ended."""

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
        decision = self._length.decide(longest, is_ready=False)
        if decision.opens_draft or decision.length:
            self._draft.start(history, None if original is None else original._draft)

    def start_clock(self) -> None:
        """The first round that may have proposals begins."""
        self._latest_end = time.perf_counter()

    async def next_round(self, step: int, history: Sequence[int], longest: int) -> Round:
        """A round with at most `longest` tokens; without any where none are wanted or none are to be had."""
        begun = Round(step=step, rule=self._request.rule, began_at=time.perf_counter())
        decision = self._decide(begun, history, longest)
        if decision.length:
            await self._ask(begun, history, decision)
        begun.drafter = self.asked_drafter
        return begun

    def refuse(self, refused: Round, error: SpecpairError) -> None:
        """The proposal is no good: the round goes without, and the draft is left alone for a while."""
        assert self._draft is not None
        refused.refuse()
        self._draft.leave_alone(InvalidDistributionError("proposal", error.message))

    def end(self, judged: Round, verdict: Verdict) -> None:
        """The round is over."""
        now = time.perf_counter()
        judged.end(verdict, now, self._latest_end)
        self._latest_end = now
        self.acceptance.add(judged)
        assert self._length is not None
        self._length.add(judged)
        self._pair.metrics.rounds.add(judged)
        is_speculating = self._draft is not None and self._request.num_speculative_tokens != 0
        self._pair.metrics.speedup.add(judged, self._length.plain_time if is_speculating else None, now)

    def leave(self) -> None:
        """The output is over."""
        if self._length is not None:
            self._length.leave()

    def _decide(self, begun: Round, history: Sequence[int], longest: int) -> Decision:
        """What to ask for now. A draft that does not know the sequence begins to read it on the side."""
        assert self._length is not None
        if self._draft is None:
            return self._length.decide(0)
        decision = self._length.decide(longest, is_ready=self._draft.is_ready)
        if decision.opens_draft and not self._draft.start(history):
            begun.has_failed = True
        return decision

    async def _ask(self, begun: Round, history: Sequence[int], decision: Decision) -> None:
        assert self._draft is not None
        begun.asked_count, begun.min_confidence = decision.length, decision.min_confidence
        self.asked_drafter = self.drafter or self.asked_drafter
        begun.take(await self._draft.propose(begun.step, history, decision.length, decision.min_confidence))
        if begun.answer is not None and (problem := _problem(begun.answer, decision.length)) is not None:
            self.refuse(begun, problem)


def _problem(answer: Proposed, count: int) -> SpecpairError | None:
    """Why the target is not even asked; None if it is."""
    if len(answer.token_ids) > count:
        return InvalidDistributionError("proposal", f"has more than {count} tokens", limit=count)
    if (size := answer.proposal.ByteSize()) > MAX_PROPOSAL_BYTES:
        return InvalidDistributionError("proposal", f"has {size} bytes", limit=MAX_PROPOSAL_BYTES)
    return None

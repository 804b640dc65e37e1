"""The proposals of one output: how many tokens to ask for, the draft's answers, and their outcome."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from coordinator.adaptive import PLAIN, Decision, OutputLength
from coordinator.outputs.acceptance import Acceptance
from coordinator.outputs.own_proposals import OwnProposals, own_drafter
from coordinator.outputs.plain_runs import PlainRuns
from coordinator.outputs.preparations import Preparations
from coordinator.outputs.proposal_problem import problem_of
from coordinator.outputs.round import Round
from coordinator.outputs.shadow_proposal import ShadowProposal
from coordinator.outputs.sources import chosen, text_drafter
from coordinator.outputs.text_draft import TextDraft
from coordinator.pair import Pair
from coordinator.peers import Verdict
from coordinator.peers.proposal_source import ProposalSource
from coordinator.requests.request import GenerationRequest
from specpair.errors import InvalidDistributionError, SpecpairError
from specpair.options import Drafter

MOST_PASSED_OVER = 3
"""Rounds in a row for whose proposals the target does not wait."""


class Proposals:
    """Asks the draft, if there is one, for the fixed or adaptive number of tokens, and counts the rounds.

    An adaptive number depends on the counts and times of earlier rounds, never on which tokens were accepted; beside
    plain rounds it may also learn from shadow proposals (see `ShadowProposal`). All state of a round is in its Round:
    the next one may begin before this one is judged, and rounds end in order.
    """

    def __init__(
        self,
        request: GenerationRequest,
        pair: Pair,
        draft: ProposalSource | None,
        *,
        ignores_proposals: bool = False,
    ):
        """`ignores_proposals` says whether the output is the same whatever is proposed."""
        self.acceptance = Acceptance()
        self.asked_drafter: Drafter | None = None
        """The drafter asked last; None before the first call."""
        self._request = request
        self._ignores_proposals = ignores_proposals
        self._pair = pair
        self._draft = draft
        self._own_drafter = own_drafter(request, pair)
        self._own = None if self._own_drafter is None else OwnProposals(pair.config.stream_interval)
        """None unless the target itself proposes."""
        is_text = text_drafter(request.drafts, request.drafter) is not None
        self._has_shadows = ignores_proposals and is_text and not request.most_tree_tokens
        """Whether it may learn from proposals that no target sees, which cost hardly anything."""
        self._shadow: ShadowProposal | None = None
        """The one that may still be compared with further tokens."""
        self._length: OutputLength | None = None
        self._preparations: Preparations | None = None
        """Both None before `begin`."""
        self._latest_end = time.perf_counter()
        """When the last round ended."""
        self._latest_accepted = 0
        """Tokens that the last round accepted."""
        self._uncounted: deque[tuple[Round, float | None]] = deque()
        """Rounds that have ended and are not in the metrics yet, each with the time that a plain one would have taken,
        if it counts for the speedup."""
        self._next: Decision | None = None
        """The decision for the next round, if the draft prepares proposals by it, or the target was told of it."""
        self._runs = PlainRuns(pair.config.stream_interval)
        self._is_opening = False
        """Whether the draft was asked to read the prompt beside the target."""
        self._is_passed_over = False
        """Whether the target has begun with the next round, without a proposal."""
        self._passed_over_count = 0
        """Rounds in a row that were, up to the present one."""

    @property
    def is_adaptive(self) -> bool:
        """Whether the number of tokens is decided anew for each round."""
        return self._request.num_speculative_tokens is None and self._can_propose

    @property
    def may_be_passed_over(self) -> bool:
        """Whether the next round may be without a proposal if none is there in time. Not if the draft prepares none,
        nor after some such rounds: it is asked then, and waited for."""
        has_some = self._draft is not None and self._draft.blocks.have_come
        return has_some and self._passed_over_count < MOST_PASSED_OVER

    @property
    def _can_propose(self) -> bool:
        """Whether there is something to propose tokens."""
        return self._draft is not None or self._own is not None

    @property
    def drafter(self) -> Drafter | None:
        """The drafter to ask; None without a draft, or while the draft's default is unknown."""
        if self._own_drafter is not None:
            return self._own_drafter
        request = self._request
        if (drafter := text_drafter(request.drafts, request.drafter)) is not None or self._pair.draft is None:
            return drafter
        link, named = chosen(self._pair, request.drafts)
        return request.drafter or named or link.own_drafter

    def begin(self, history: Sequence[int], longest: int, original: "Proposals | None" = None) -> None:
        """Adds the output to the load, until `leave`.

        If tokens are to be proposed, the draft reads the prompt at the same time as the target.
        """
        request = self._request
        fixed = request.num_speculative_tokens if self._can_propose else 0
        self._pair.publish_costs()
        group = (self.drafter, request.rule, request.sampling.temperature)
        tree_tokens = 0 if self._own is not None else request.most_tree_tokens  # a head's are the target's
        self._length = self._pair.lengths.enter(*group, fixed, tree_tokens, has_shadows=self._has_shadows)
        own = (self._pair.ahead.of(*group), self._pair.lengths.load, self._pair.target)
        withholding = None if self._ignores_proposals else self._pair.withholding[request.drafts]
        self._preparations = Preparations(request, *own, withholding)
        if self._draft is None:
            return
        if self._draft.opens and self._length.opens_early(longest):
            self._is_opening = self._draft.start(history, None if original is None else original._draft)

    def start_clock(self) -> None:
        """Starts the time of the first round that may have a proposal."""
        self._latest_end = time.perf_counter()

    def first_round(
        self, step: int, history: Sequence[int], longest: int, left: int = 1, *, prepares: bool = True
    ) -> Round:
        """The round of the first token, which has no proposal; `longest` is that of the next one, `left` the tokens
        that may then come in runs. Whether that has a proposal is known if the target makes it, or nothing ever does.
        Else the draft may prepare it meanwhile, if it `prepares` anything."""
        first = Round(step=step, rule=self._request.rule)
        if self._own is not None and self._length is not None:
            self._own.order(first, longest, self._length.decide(longest), left)
        elif self._draft is None or self._request.num_speculative_tokens == 0:
            self._runs.promise(first, left)
        elif self._is_opening and prepares:
            self._prepare(first, history, longest)
        return first

    def _prepare(self, first: Round, history: Sequence[int], longest: int) -> None:
        """Has the draft prepare the next round while the target reads the prompt, once it has read that itself."""
        assert self._draft is not None and self._length is not None and self._preparations is not None
        if not self._preparations.are_wanted(self.drafter):
            return
        newest = self._length.decide(longest)
        self._length.use(PLAIN)
        if newest.is_probe:
            self._length.postpone_probe()
        preparation = self._preparations.after(first, len(history), newest, self.drafter)
        if preparation is not None and self._draft.prepare(first.step, history, preparation):
            first.prepared_count, self._next = preparation.count, newest

    async def next_round(self, step: int, history: Sequence[int], longest: int, left: int = 1, after: int = 0) -> Round:
        """A round with at most `longest` proposed tokens, and `after` in the one after it; none if none pay or the
        draft has none. Of the output `left` tokens may come in runs."""
        begun = Round(step=step, rule=self._request.rule, began_at=time.perf_counter())
        begun.accepted_before = self._latest_accepted
        if self._length is not None:
            self._length.contribution.set_cached_count(len(history))
        if self._own is not None:
            self._take_own(begun, longest, left, after)
            return begun
        self._compare(history)
        newest = self._decide(begun, history, longest)
        if self._is_passed_over:
            self._pass_over(begun, history, newest)
            return begun
        self._passed_over_count = 0
        decision, self._next = self._in_force(step, history, newest, longest), None
        if newest.is_probe and not decision.length and self._length is not None:
            self._length.postpone_probe()
        if decision.length:
            await self._ask(begun, history, decision, newest)
        elif newest.shadow_length:
            self._guess(step, history, newest.shadow_length)
        assert self._length is not None
        if self._runs.plan(begun, decision, newest, left, self._length):
            self._next = PLAIN
        begun.drafter = self.asked_drafter
        return begun

    def give_up_runs(self, begun: Round) -> None:
        """A pass of the run failed: this round, and all that follow, are asked for one by one."""
        self._runs.give_up()
        self._next = None
        begun.order, begun.following_order = begun.order.alone, None
        if self._own is not None:
            self._own.give_up_runs(begun)

    def promise(self, *, is_promised: bool) -> None:
        """Notes whether the target is told that the next round has no proposal. A head in the target proposes in the
        passes of all."""
        if self._length is not None and self._own is None:
            self._length.contribution.set_promised(is_promised=is_promised)

    def refuse(self, refused: Round, error: SpecpairError) -> None:
        """Drops an invalid proposal: the round has none, and the draft is not asked during the cool-down."""
        refused.refuse()
        if self._draft is not None:
            self._draft.leave_alone(InvalidDistributionError("proposal", error.message))

    def end(self, judged: Round, verdict: Verdict) -> None:
        """Ends the round, and learns from it. It is counted once the next call is on its way."""
        now = time.perf_counter()
        judged.end(verdict, now, self._latest_end)
        rounds = judged.passes()
        self._latest_end, self._latest_accepted = now, rounds[-1].accepted_count
        self._is_passed_over = verdict.has_gone_on_plain
        self.keep_own(verdict)
        self.acceptance.add(judged)
        assert self._length is not None and self._preparations is not None
        self._preparations.add(judged, self._length)
        is_speculating = self._can_propose and self._request.num_speculative_tokens != 0
        for index, one in enumerate(rounds):
            if self._own is None:
                self._length.add(one)
            else:
                self._own.learn(one, self._length, is_first=index == 0)
            self._uncounted.append((one, self._length.plain_time(one) if is_speculating else None))
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._count)  # calls are sent one turn of the loop after they are made

    def keep_own(self, verdict: Verdict) -> None:
        """Keeps what the target proposed with its verdict."""
        if self._own is not None:
            self._own.keep(verdict)

    def _count(self) -> None:
        """Adds the rounds that have ended to the metrics."""
        while self._uncounted:
            judged, plain_time = self._uncounted.popleft()
            self._pair.metrics.add_round(judged)
            self._pair.metrics.speedup.add(judged, plain_time, judged.ended_at)

    def leave(self, history: Sequence[int]) -> None:
        """Counts its last rounds, and removes the output from the load."""
        try:
            self._count()
            self._compare(history)
            if self._shadow is not None and (accepted := self._shadow.accepted_count(history)):
                self._learn(replace(self._shadow, asked=accepted), history)  # one with an error would be settled
        finally:
            if self._length is not None:
                self._length.leave()

    def _take_own(self, begun: Round, longest: int, left: int, after: int) -> None:
        """Gives the round what the target proposed before; it is then to propose for the next one."""
        assert self._own is not None and self._length is not None
        self._own.take(begun, longest, self._length, left, after)
        self.asked_drafter = begun.drafter = self._own_drafter

    def _decide(self, begun: Round, history: Sequence[int], longest: int) -> Decision:
        """Decides what to ask for. A draft that does not hold the sequence opens it in the background."""
        assert self._length is not None
        if self._draft is None:
            return self._length.decide(0)
        decision = self._length.decide(longest, is_ready=self._draft.is_ready)
        if decision.opens_draft and not self._draft.start(history):
            begun.has_failed = True
        return decision

    def _in_force(self, step: int, history: Sequence[int], newest: Decision, longest: int) -> Decision:
        """The decision for this round: the one made in advance, by which the draft may have prepared its proposal, or
        the target gone on by itself.

        It holds on a miss as well, so that no length depends on what was prepared or how fast. If the draft was lost
        meanwhile, or took over with other limits, what it had prepared is used all the same: the target may have it.
        """
        assert self._length is not None and self._preparations is not None
        if self._next is None or self._draft is None:
            return newest
        if self._next.length:  # a plain round needs no draft
            if self._draft.has_prepared(step, history):
                longest = self._preparations.room(len(history))
            elif not self._draft.is_ready:
                return newest
        decision = self._next._replace(length=min(self._next.length, longest))
        self._length.use(decision)
        return decision

    def _guess(self, step: int, history: Sequence[int], count: int) -> None:
        """Makes a shadow proposal beside a plain round; one that is not settled yet stays instead."""
        assert isinstance(self._draft, TextDraft) and self._length is not None
        if self._shadow is None:
            guessed = self._draft.guess(step, history, count)
            self._shadow = ShadowProposal(guessed, count, len(history))
            self._length.add_guess(count, len(guessed))

    def _compare(self, history: Sequence[int]) -> None:
        """Learns from the shadow proposal, once the tokens that decide are there."""
        if self._shadow is not None and self._shadow.is_settled(history):
            self._learn(self._shadow, history)

    def _learn(self, shadow: ShadowProposal, history: Sequence[int]) -> None:
        assert self._length is not None
        self._shadow, accepted = None, shadow.accepted_count(history)
        self._length.add_shadow(shadow.asked, accepted)
        self._pair.metrics.shadows.add(self.drafter, self._request.rule, shadow.asked, accepted)

    def _pass_over(self, begun: Round, history: Sequence[int], newest: Decision) -> None:
        """Gives the round no proposal, since the target has begun without one. The draft learns the new tokens, and
        works ahead by the `newest` decision, if that pays."""
        assert self._draft is not None and self._length is not None and self._preparations is not None
        self._length.use(PLAIN)
        self._passed_over_count += 1
        begun.is_passed_over, begun.drafter, self._next = True, self.asked_drafter, None
        preparation = self._preparations.after(begun, len(history), newest, self.drafter)
        if preparation is not None and self._draft.pass_over(begun.step, history, preparation):
            begun.prepared_count, self._next = preparation.count, newest

    async def _ask(self, begun: Round, history: Sequence[int], decision: Decision, newest: Decision) -> None:
        """Gets the proposal by `decision`; the draft then works ahead by the `newest` one, if that pays."""
        assert self._draft is not None and self._length is not None and self._preparations is not None
        begun.asked_count = decision.length
        self.asked_drafter = self.drafter or self.asked_drafter
        preparation = self._preparations.after(begun, len(history), newest, self.drafter)
        if preparation is not None:
            begun.prepared_count, self._next = preparation.count, newest
        target = self._pair.target.info
        wanted = self._request.tree_tokens(decision.length) if target.runs_trees else 0  # it may be another one by now
        tree_tokens = min(wanted, target.max_num_speculative_tokens, target.max_model_len - len(history))
        begun.take(
            await self._draft.propose(
                begun.step, history, decision.length, decision.min_confidence, preparation, tree_tokens
            )
        )
        if begun.answer is not None and (problem := problem_of(begun.answer, decision.length, tree_tokens)) is not None:
            self.refuse(begun, problem)

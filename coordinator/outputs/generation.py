"""The loop of one output: propose, verify, commit."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import replace

from coordinator.deadline import NEVER, Deadline
from coordinator.outputs.acceptance import Acceptance
from coordinator.outputs.early_verification import EarlyVerification
from coordinator.outputs.origins import origins_of
from coordinator.outputs.output import Output
from coordinator.outputs.output_part import Origin, OutputPart
from coordinator.outputs.own_proposals import own_drafter
from coordinator.outputs.proposals import Proposals
from coordinator.outputs.round import Round
from coordinator.outputs.round_report import RoundReport
from coordinator.outputs.sources import can_propose, proposal_source
from coordinator.pair import Pair
from coordinator.peers import OwnOrder, TargetSession, Verdict
from coordinator.requests.request import GenerationRequest
from specpair.errors import (
    ForwardFailedError,
    InvalidDistributionError,
    InvalidFieldError,
    NotFiniteError,
    NotSupportedError,
    SpecpairError,
)
from specpair.grammars.grammar import MAX_FORCED_TOKENS
from specpair.tracing import span
from specpair.v1.proposal_pb2 import Proposal


class Generation:
    """One output from its first to its last token.

    It owns the tokens; the sequences at draft and target are caches of them. Steps only grow, even when a sequence is
    reopened: they key the random draws, and no draw may be used for two rounds.
    """

    def __init__(
        self,
        request: GenerationRequest,
        pair: Pair,
        arrival: float | None = None,
        original: "Generation | None" = None,
        deadline: Deadline = NEVER,
    ):
        """`arrival` is the time.perf_counter at which the request arrived, now if None; `deadline` is that of its
        client.

        `original` is another output of the same prompt: this one waits until the original has fed the prompt, and its
        sequences begin as forks of the original's.
        """
        self.request = request
        self.sequence_id = secrets.token_hex(16)
        self.output = Output(request, pair.target.tokenizer)
        self.time_to_first_token = 0.0
        """Seconds from the arrival."""
        self.cumulative_logprob = 0.0
        """Sum over the output's tokens; 0 unless the target was asked for logprobs."""
        self.beam_score: float | None = None
        """Only beams have one."""
        self.closing: asyncio.Task[None] | None = None
        """The task that closes the sequences at draft and target, once the output has ended."""
        self._arrival = time.perf_counter() if arrival is None else arrival
        self._original = original
        self._forks_due = 0
        """Other outputs that will begin as forks of this one: until then the target must not go on by itself."""
        if original is not None:
            original._forks_due += 1
        self._has_fed_prompt = asyncio.Event()
        self._cached_prompt_token_count = 0
        self._pair = pair
        self._history = [*request.prompt_ids, *request.resumed_ids]
        self._round_start = self._arrival
        prompt_length = len(request.prompt_ids)
        # Adaptive K is learnt from other outputs. If one of them had the same noise, its counts would tell how this
        # one's tokens will be drawn (docs/exactness.md, rule 8).
        self._is_own = own_drafter(request, pair) is not None
        drawn = request if request.repeats or not can_propose(request, pair) else request.with_private_seed()
        options = drawn.sequence_options(pair.target.info.vocab_size)
        self.has_logprobs = options.logprobs is not None
        self._ignores_proposals = options.ignores_proposals
        config = pair.config
        self._target = TargetSession(
            pair.target,
            self.sequence_id,
            prompt_length,
            options,
            config.target_timeout,
            length=prompt_length + request.max_tokens,
            deadline=deadline,
            include_probabilities=request.include_rounds,
        )
        own = replace(options, structured_output=None) if config.unmasked_drafts else options
        self._draft = None if self._is_own else proposal_source(request, pair, self.sequence_id, own, deadline)
        self._early = None if self._draft is None else EarlyVerification(request, self._target, self._draft.blocks)
        self.proposals = Proposals(request, pair, self._draft, ignores_proposals=options.ignores_proposals)

    @property
    def acceptance(self) -> Acceptance:
        """The statistics so far."""
        return self.proposals.acceptance

    @property
    def cached_prompt_token_count(self) -> int:
        """Tokens of the prompt that the target had in its cache, for all outputs of the prompt."""
        original = self._original
        return self._cached_prompt_token_count if original is None else original.cached_prompt_token_count

    @property
    def total_time(self) -> float:
        """Seconds since the arrival."""
        return time.perf_counter() - self._arrival

    @property
    def mean_logprob(self) -> float:
        """Mean logprob of the output's tokens; 0 without any."""
        return self.cumulative_logprob / max(self.output.new_token_count, 1)

    @property
    def _first_step(self) -> int:
        """A step above all that the resumed call used: each of its rounds gave at least one token."""
        return len(self.request.resumed_ids)

    async def parts(self) -> AsyncGenerator[OutputPart, None]:
        """Runs to the end. Both sequences are closed when the iteration ends, however it ends.

        With echo, or with no token to generate, the first part is the prompt.
        """
        if self.request.echo or self.output.finish_reason is not None:
            yield self._prompt_part()
        if self.output.finish_reason is not None:
            return
        try:
            await self._open()
            yield await self._first_part()
            step = self._first_step + 1
            while self.output.finish_reason is None:
                part, step = await self._next_part(step)
                yield part
        finally:
            self.closing = self._pair.background.spawn(self._close())
            if self._early is not None:
                self._early.leave()
            self.proposals.leave(self._history)

    def _prompt_part(self) -> OutputPart:
        return OutputPart(text=self.request.prompt_text, is_last=self.output.finish_reason is not None)

    async def _open(self) -> None:
        original = self._original
        if original is not None:
            await original._has_fed_prompt.wait()
        self.proposals.begin(self._history, self._longest_block(), None if original is None else original.proposals)
        if original is None:
            await self._target.open(self._history)
        else:
            try:
                await self._target.fork(original._target)
            finally:
                original._forks_due -= 1

    async def _first_part(self) -> OutputPart:
        """The first token, from the target's prefill. Its time counts from the request's arrival."""
        step, longest = self._first_step, self._longest_block(1)
        with span("round", sequence=self.sequence_id, step=step) as traced:
            # Nothing is prepared before forks: the next call would hold the sequence while they wait for it.
            left, prepares = self._tokens_of_runs() - 1, not self._forks_due
            first = self.proposals.first_round(step, self._history, longest, left, prepares=prepares)
            first.verdict = await self._judge(first)
            if self._original is None:
                self._count_cached(first.verdict.cached_token_count)
            self.proposals.keep_own(first.verdict)
            self.time_to_first_token = self.total_time
            self._has_fed_prompt.set()
            self.proposals.start_clock()
            part = self._commit(first)
            traced.set(tokens=len(part.token_ids), **first.facts)
        return part

    async def _next_part(self, step: int) -> tuple[OutputPart, int]:
        """What the round of this step adds, and the step after it."""
        self._round_start = time.perf_counter()  # time before this is the pause of a client that is slow to read
        with span("round", sequence=self.sequence_id, step=step) as traced:
            longest, left, after = self._longest_block(), self._tokens_of_runs(), self._longest_block(1)
            begun = await self.proposals.next_round(step, self._history, longest, left, after)
            verdict = begun.verdict = await self._verify(begun)
            part = self._commit(begun)
            traced.set(tokens=len(part.token_ids), **begun.facts)
        self.proposals.end(begun, verdict)
        return part, step + verdict.pass_count

    async def _verify(self, begun: Round) -> Verdict:
        """The verdict; if the target refuses the proposal or fails on it, the verdict of a plain round.

        A forward pass may fail because of the proposal's size; then a plain round is correct. Logits that are not
        finite depend on the proposed tokens: a plain round instead would change the distribution, so that error is
        raised.
        """
        if begun.order.run_length > 1:
            try:
                return await self._verify_in_one(begun)
            except (ForwardFailedError, NotFiniteError):
                self.proposals.give_up_runs(begun)
        return await self._verify_in_one(begun)

    async def _verify_in_one(self, begun: Round) -> Verdict:
        """The verdict of one call, or if the proposal is to blame, of another one without it."""
        if begun.drafted_count:
            try:
                return await self._judge(begun)
            except (InvalidFieldError, NotSupportedError) as error:
                if not is_about_the_proposal(error):
                    raise
                self.proposals.refuse(begun, error)
            except ForwardFailedError as error:
                if begun.order.run_length > 1:  # another pass of the run may have failed
                    raise
                self.proposals.refuse(begun, error)
        return await self._judge(begun)

    async def _judge(self, begun: Round) -> Verdict:
        """The target's verdict. Raises SpecpairError if it does not fit the proposal."""
        proposal = begun.proposed.proposal if begun.proposed is not None and begun.drafted_count else None
        verdict = await self._ask_target(begun, proposal)
        count = verdict.committed_count
        if self.has_logprobs and len(verdict.logprobs) != count:
            raise SpecpairError(f"the target sent {len(verdict.logprobs)} logprobs for {count} tokens")
        return verdict

    async def _ask_target(self, begun: Round, proposal: Proposal | None) -> Verdict:
        """The verdict. If the draft works ahead, what it prepares meanwhile is sent after the call."""
        if self._early is None or not begun.works_ahead:
            forced = self._most_forced(begun)
            following = None if forced else self._following_order(begun)
            self.proposals.promise(is_promised=following is not None)
            asked = (begun.order, forced, following)
            return await self._target.verify(begun.step, self._history, proposal, None, *asked)
        self._early.begin(begun, len(self._history))
        self.proposals.promise(is_promised=False)
        may_go_on = self._may_go_on_plain(begun)
        try:
            follow = self._early.follow
            return await self._target.verify(begun.step, self._history, proposal, follow, may_go_on_plain=may_go_on)
        finally:
            self._early.end()

    def _following_order(self, begun: Round) -> OwnOrder | None:
        """The order of the next call, if that is known: the output does not end before it by its length, nor so soon
        that its proposal or order would be cut."""
        following = begun.following_order
        if following is None or self._forks_due:
            return None
        left = self.output.remaining_tokens - begun.most_tokens
        return following if left >= following.room_after(begun.order.count) else None

    def _may_go_on_plain(self, begun: Round) -> bool:
        """Whether the target may go on without a proposal if none is there: the draft prepares some, the output is the
        same with and without one, and does not end before by its length."""
        is_possible = self._ignores_proposals and not self._forks_due and self.proposals.may_be_passed_over
        return is_possible and self.output.remaining_tokens > begun.depth + 1

    def _most_forced(self, begun: Round) -> int:
        """Forced tokens to take with the verdict; none where a head has already proposed what comes next."""
        if not self.request.takes_forced_text or begun.order.count:
            return 0
        return min(MAX_FORCED_TOKENS, self.output.remaining_tokens - 1)

    def _longest_block(self, committed: int = 0) -> int:
        """The largest number of tokens to propose now, or once so many more are committed. It depends on lengths alone,
        never on drawn tokens.

        One position is left for the next token. Prompt and max_tokens fit the target's length, so the remaining tokens
        do as well.
        """
        limits = [
            self._pair.config.max_num_speculative_tokens,
            self._pair.target.info.max_num_speculative_tokens,
            self.output.remaining_tokens - committed - 1,
        ]
        if self._draft is not None and self._draft.is_known:
            limits.append(self._draft.room(len(self._history) + committed))
        return max(min(limits), 0)

    def _tokens_of_runs(self) -> int:
        """The tokens that may come in runs: one where each is reported or needs something of its own, else all that are
        left."""
        request = self.request
        if self._forks_due or request.include_rounds or request.structured_output is not None:
            return 1
        if self._is_own and request.include_rejected:
            return 1
        return self.output.remaining_tokens

    def _commit(self, judged: Round) -> OutputPart:
        drafted, verdict = judged.token_ids, judged.judged
        accepted = (drafted[index] for index in verdict.path)
        tokens = [*accepted, verdict.next_token_id, *verdict.run_ids, *verdict.forced_ids]
        self._history += tokens
        committed = self.output.commit(tokens)
        kept = committed.kept_count
        judged.pass_count = verdict.passes_for(kept)
        logprobs = verdict.logprobs[:kept] if self.has_logprobs else ()
        self.cumulative_logprob += sum(entry.logprob for entry in logprobs)
        origins = origins_of(judged)[:kept]
        self._count_tokens(kept, origins.count(Origin.FORCED))
        rejected = [token for index, token in enumerate(drafted) if index not in verdict.path]
        return OutputPart(
            token_ids=tokens[:kept],
            origins=origins,
            text=committed.text,
            is_last=self.output.finish_reason is not None,
            logprobs=logprobs,
            rejected_ids=rejected if kept > verdict.accepted_count else (),
            report=RoundReport.of(judged, self._arrival) if self.request.include_rounds else None,
        )

    def _count_cached(self, count: int) -> None:
        self._cached_prompt_token_count = self.request.cached_prompt_tokens(count)
        self._pair.metrics.requests.add_cached_prompt(self._cached_prompt_token_count)

    def _count_tokens(self, count: int, forced_count: int) -> None:
        """Counts the tokens of a round, which share all of its time: the client waited for that of others, too."""
        self.acceptance.forced_token_count += forced_count
        metrics, elapsed = self._pair.metrics.requests, time.perf_counter() - self._round_start
        if self.output.new_token_count == count:
            metrics.add_first_token(elapsed, forced_count)
        else:
            metrics.add_tokens(count, elapsed, forced_count)

    async def _close(self) -> None:
        sessions = [self._target] if self._draft is None else [self._target, self._draft]
        await asyncio.gather(*(session.close() for session in sessions))


def is_about_the_proposal(error: SpecpairError) -> bool:
    """Whether the target refused the proposal rather than the request."""
    if isinstance(error, InvalidDistributionError | NotSupportedError):
        return True
    return error.metadata.get("field", "").startswith("proposal")

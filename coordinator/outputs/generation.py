"""The loop of one output: propose, verify, commit."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coordinator.deadline import NEVER, Deadline
from coordinator.outputs.acceptance import Acceptance
from coordinator.outputs.output import Output
from coordinator.outputs.proposals import Proposals
from coordinator.outputs.round_report import RoundReport
from coordinator.pair import Pair
from coordinator.peers import DraftSession, Proposed, TargetSession, Verdict
from coordinator.requests.request import GenerationRequest
from specpair.errors import (
    ForwardFailedError,
    InvalidDistributionError,
    InvalidFieldError,
    NotSupportedError,
    SpecpairError,
)
from specpair.tracing import span
from specpair.v1.logprobs_pb2 import TokenLogprobs

logger = logging.getLogger(__name__)


class Origin(StrEnum):
    """Where a token came from."""

    ACCEPTED = "accepted"
    CORRECTION = "correction"
    BONUS = "bonus"
    TARGET = "target"


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round gave."""

    token_ids: Sequence[int]
    origins: Sequence[Origin]
    """One for each token."""
    text: str
    is_last: bool
    """Whether the output ended with it."""
    logprobs: Sequence[TokenLogprobs] = ()
    """One for each token, if the target was asked for them."""
    rejected_ids: Sequence[int] = ()
    report: RoundReport | None = None
    """How it went, if that is wanted."""


class Generation:
    """One output from its first to its last token.

    It owns the tokens; the sequences at draft and target are caches of them. Steps only ever grow, also when a
    sequence is opened again: they key the random draws, and no draw may be used for two rounds.
    """

    def __init__(
        self,
        request: GenerationRequest,
        pair: Pair,
        arrival: float | None = None,
        original: "Generation | None" = None,
        deadline: Deadline = NEVER,
    ):
        """`arrival` is the time.perf_counter at which the request came in, now if None; `deadline` that of
        its client.

        With an `original`, another output of the same prompt, the sequences begin as copies of its own: it waits until
        that one has fed the prompt.
        """
        self.request = request
        self.sequence_id = secrets.token_hex(16)
        self.output = Output(request, pair.target.tokenizer)
        self.time_to_first_token_us = 0
        self.cumulative_logprob = 0.0
        """Sum over the output's tokens; 0 unless the target was asked for logprobs."""
        self.closing: asyncio.Task[None] | None = None
        """What gives the places at draft and target back, once the output has ended."""
        self._arrival = time.perf_counter() if arrival is None else arrival
        self._original = original
        self._has_fed_prompt = asyncio.Event()
        self._pair = pair
        self._history = [*request.prompt_ids, *request.resumed_ids]
        self._round_start = self._arrival
        prompt_length = len(request.prompt_ids)
        options = request.sequence_options(pair.target.info.vocab_size)
        self.has_logprobs = options.logprobs is not None
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
        self._draft = None
        if pair.draft is not None:
            times = (config.draft_timeout, config.draft_cooldown)
            self._draft = DraftSession(pair.draft, self.sequence_id, prompt_length, options, *times, deadline=deadline)
        self.proposals = Proposals(request, pair, self._draft)

    @property
    def acceptance(self) -> Acceptance:
        """What speculation did so far."""
        return self.proposals.acceptance

    @property
    def total_time_us(self) -> int:
        return round((time.perf_counter() - self._arrival) * 1e6)

    @property
    def mean_logprob(self) -> float:
        """Of the output's tokens; 0 without any."""
        return self.cumulative_logprob / max(self.output.new_token_count, 1)

    @property
    def _first_step(self) -> int:
        """Behind those that the call before this one used for the tokens received: each round gave at least one."""
        return len(self.request.resumed_ids)

    async def rounds(self) -> AsyncGenerator[Round, None]:
        """Runs to the end. Both sequences are closed when the iteration ends, however it ends.

        A prompt that is to be repeated, or that is all that is wanted, comes as a round of its own.
        """
        if self.request.echo or self.output.finish_reason is not None:
            yield self._prompt_round()
        if self.output.finish_reason is not None:
            return
        try:
            await self._open()
            yield await self._first_round()
            step = self._first_step
            while self.output.finish_reason is None:
                step += 1
                yield await self._next_round(step)
        finally:
            self.proposals.leave()
            self.closing = self._pair.background.spawn(self._close())

    def _prompt_round(self) -> Round:
        is_last = self.output.finish_reason is not None
        return Round(token_ids=(), origins=(), text=self.request.prompt_text, is_last=is_last)

    async def _open(self) -> None:
        original = self._original
        if original is not None:
            await original._has_fed_prompt.wait()
        self.proposals.begin(self._history, self._longest_block(), None if original is None else original.proposals)
        if original is None:
            await self._target.open(self._history)
        else:
            await self._target.fork(original._target)

    async def _first_round(self) -> Round:
        """The first token, straight from the target's prefill. Its time counts from the request's arrival."""
        step = self._first_step
        with span("round", sequence=self.sequence_id, step=step, proposed=0, accepted=0):
            verdict = await self._judge(step, None)
        self.time_to_first_token_us = self.total_time_us
        self._has_fed_prompt.set()
        self.proposals.start_clock()
        return self._commit([], verdict, [Origin.TARGET], self._report(step, None, verdict))

    async def _next_round(self, step: int) -> Round:
        self._round_start = time.perf_counter()  # what was before is the pause of a client that is slow to read
        with span("round", sequence=self.sequence_id, step=step) as traced:
            proposed = await self.proposals.next(step, self._history, self._longest_block())
            verdict, proposed = await self._verify(step, proposed)
            drafted = list(proposed.token_ids) if proposed is not None else []
            traced.set(proposed=len(drafted), accepted=verdict.accepted_count)
        self.proposals.add(len(drafted), verdict)
        accepted_count = verdict.accepted_count
        origins = [Origin.ACCEPTED] * accepted_count + [_origin_of_next(len(drafted), accepted_count)]
        return self._commit(drafted, verdict, origins, self._report(step, proposed, verdict))

    def _report(self, step: int, proposed: Proposed | None, verdict: Verdict) -> RoundReport | None:
        if not self.request.include_rounds:
            return None
        return RoundReport.of(step, proposed, verdict, self._arrival)

    async def _verify(self, step: int, proposed: Proposed | None) -> tuple[Verdict, Proposed | None]:
        """The verdict and the proposal it is about: none if the target refused what the draft sent, or cannot bear it.

        A forward pass may fail for a proposal's size. Logits that are not finite come of its very tokens: to go on
        without those would bend the distribution.
        """
        if proposed is not None:
            try:
                return await self._judge(step, proposed), proposed
            except (InvalidFieldError, NotSupportedError) as error:
                if not is_about_the_proposal(error):
                    raise
                self.proposals.refuse(error)
            except ForwardFailedError as error:
                self.proposals.refuse(error)
        return await self._judge(step, None), None

    async def _judge(self, step: int, proposed: Proposed | None) -> Verdict:
        """The target's verdict. Raises SpecpairError if it does not fit the proposal."""
        verdict = await self._target.verify(step, self._history, proposed.proposal if proposed else None)
        drafted_count = len(proposed.token_ids) if proposed else 0
        committed_count = verdict.accepted_count + 1
        if committed_count > drafted_count + 1:
            raise SpecpairError(f"the target accepted {verdict.accepted_count} of {drafted_count} tokens")
        if self.has_logprobs and len(verdict.logprobs) != committed_count:
            raise SpecpairError(f"the target sent {len(verdict.logprobs)} logprobs for {committed_count} tokens")
        return verdict

    def _longest_block(self) -> int:
        """Most tokens to propose now. It looks at lengths alone, never at what was drawn.

        One place is left for the target's own token. Prompt and max_tokens fit the target, so what remains of
        max_tokens keeps to its length as well.
        """
        limits = [
            self._pair.config.max_num_speculative_tokens,
            self._pair.target.info.max_num_speculative_tokens,
            self.output.remaining_tokens - 1,
        ]
        if self._draft is not None and self._draft.is_known:
            limits.append(self._draft.room(len(self._history)))
        return max(min(limits), 0)

    def _commit(self, drafted: list[int], verdict: Verdict, origins: list[Origin], report: RoundReport | None) -> Round:
        accepted_count = verdict.accepted_count
        tokens = [*drafted[:accepted_count], verdict.next_token_id]
        self._history += tokens
        committed = self.output.commit(tokens)
        kept = committed.kept_count
        logprobs = verdict.logprobs[:kept] if self.has_logprobs else ()
        self.cumulative_logprob += sum(entry.logprob for entry in logprobs)
        self._count_tokens(kept)
        return Round(
            token_ids=tokens[:kept],
            origins=origins[:kept],
            text=committed.text,
            is_last=self.output.finish_reason is not None,
            logprobs=logprobs,
            rejected_ids=drafted[accepted_count:] if kept == len(tokens) else (),
            report=report,
        )

    def _count_tokens(self, count: int) -> None:
        metrics, elapsed = self._pair.metrics.requests, time.perf_counter() - self._round_start
        if self.output.new_token_count == count:
            metrics.add_first_token(elapsed)
        else:
            metrics.add_tokens(count, elapsed)

    async def _close(self) -> None:
        sessions = [self._target] if self._draft is None else [self._target, self._draft]
        await asyncio.gather(*(session.close() for session in sessions))


def is_about_the_proposal(error: SpecpairError) -> bool:
    """Whether the target refused what the draft sent, rather than the request."""
    if isinstance(error, InvalidDistributionError | NotSupportedError):
        return True
    return error.metadata.get("field", "").startswith("proposal")


def _origin_of_next(drafted_count: int, accepted_count: int) -> Origin:
    if drafted_count == 0:
        return Origin.TARGET
    return Origin.BONUS if accepted_count == drafted_count else Origin.CORRECTION

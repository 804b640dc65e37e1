"""Verifies proposals: many sequences, one forward pass, one vectorised judgement.

Only verdicts, and additional results that were requested, leave the device.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Self, TypeAlias

import torch
from torch import Tensor

from specpair.engine.device_thread import DeviceThread
from specpair.engine.host import ModelHost
from specpair.engine.work import Work
from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError, NotSupportedError, SpecpairError
from specpair.model_info import NO_DEFAULTS, ModelInfo
from specpair.models.drafting_runner import DraftingRunner, TreeDraftingRunner
from specpair.models.model_facts import ModelFacts
from specpair.models.runner import Runner
from specpair.models.sampling_defaults import read_sampling_defaults
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequel import Sequel
from specpair.server.identity import client_name
from specpair.speculation.logprobs import TokenLogprobs
from target_service.judging import advance_verification, sent_probabilities
from target_service.late_rows import LateOutcome, LateRows, WithdrawnError
from target_service.masking import MaskMaker
from target_service.own_proposal import OwnProposal, not_kept
from target_service.scorer import Scorer
from target_service.scoring import ScoreWork
from target_service.self_drafting import SelfDrafter
from target_service.tree_scorer import TreeScorer
from target_service.tree_scores import TreeScoreWork
from target_service.unjudged import UnjudgedWorks
from target_service.verify_work import (
    MOST_RUN,
    ConditionalRequest,
    Verdict,
    VerdictCondition,
    VerifyCall,
    VerifyWork,
)

DECODED_BETWEEN_PASSES_BYTES = 64 * 1024
"""Largest conditional call that the device thread decodes itself, while all others wait; the event loop decodes longer
ones. A sparse proposal of eight tokens has 20 KB, and takes a tenth of a millisecond."""

log = logging.getLogger(__name__)

NextWork: TypeAlias = tuple[VerifyWork, Callable[[], Awaitable[Verdict]]]


class Verifier(ModelHost[Verdict]):
    """The target model with its sequences."""

    def __init__(self, config: EngineConfig, facts: ModelFacts, runner: Runner, device: DeviceThread):
        self._drafter = self_drafter(config, facts, runner)
        self._drafters = runner.drafters if isinstance(runner, DraftingRunner) else ()
        self._unjudged = UnjudgedWorks()
        super().__init__(config, facts, runner, device)
        self.masks = MaskMaker()
        self._scorer = Scorer(self.engine, self.sequences, self.token_budget)
        no_beams = "the target drafts by itself" if self.has_head else self.no_trees
        self.late_outcomes: Counter[LateOutcome] = Counter()
        self.trees = TreeScorer(self.engine, self.sequences, no_beams)
        """For beam search."""
        self.sampling_defaults = NO_DEFAULTS
        """What coordinators are told; calls to this service say themselves how to draw."""

    @classmethod
    async def start(cls, config: EngineConfig) -> Self:
        """The same, with the model's sampling defaults: they are read first, since a mistake there needs no weights."""
        defaults = NO_DEFAULTS
        if config.generation_config == "auto":
            defaults = await asyncio.to_thread(read_sampling_defaults, config.model)
        verifier = await super().start(config)
        verifier.sampling_defaults = defaults
        if defaults.given:
            log.info("requests that do not set them get the model's %s (--generation-config)", defaults)
        return verifier

    @property
    def has_head(self) -> bool:
        """Whether the target can propose."""
        return self._drafter is not None

    def info(self) -> ModelInfo:
        beams = not self.trees.why_not
        return replace(
            super().info(),
            drafters=self._drafters,
            runs_beams=beams,
            goes_on_plain=True,
            takes_withheld_distributions=True,
            longest_run=MOST_RUN,
            sampling_defaults=self.sampling_defaults,
        )

    async def verify(self, call: VerifyCall, body: object, sequel: Sequel[Verdict] | None = None) -> Verdict:
        """The verdict on one call, computed once for each step. Commits the accepted tokens and the next token.

        Goes on to the sequel by itself.
        """

        async def compute(held: HeldSequence[Verdict]) -> Verdict:
            return await self._judge(held, call)

        return await self.sequences.step(call.sequence_id, call.step, body, compute, sequel)

    def submit(self, call: VerifyCall, held: HeldSequence[Verdict]) -> Callable[[], Awaitable[Verdict]]:
        """Begins with a call for which nobody waits yet."""
        return partial(self._verdict, held, self._submit(held, call))

    def go_on(self, before: VerifyWork, decode: Callable[[], VerifyCall]) -> NextWork | None:
        """Runs on the device thread when it has judged `before`: the work of the call that follows, and what gives its
        verdict. None, with nothing changed, if the call moves the sequence, or needs the event loop."""
        held, length = before.held, len(before.sequence.tokens)
        if held.grammar is not None:  # its masks begin with its call
            return None
        try:
            call = judgeable(decode(), held, before.own_proposal)
        except SpecpairError:  # the event loop says so to the call
            return None
        if call.step <= before.step or call.base_length != length or call.appended:
            return None
        if length + fed_count(call) > self.facts.max_model_len:
            return None
        work = work_of(held, call, self.facts.vocab_size)
        work.sequence.replace_from(length, call.proposed)
        return work, partial(self._verdict, held, work)

    async def score(self, token_ids: list[int], top_count: int) -> list[TokenLogprobs]:
        """Logprobs of all tokens but the first. The cache is kept for sequences with the same prefix."""
        return await self._scorer.score(token_ids, top_count)

    def begin_if(self, condition: VerdictCondition, request: ConditionalRequest) -> None:
        """Begins with a call if the verdict that it depends on is as stated: then the ordinary call finds its step
        under way. Nothing is changed otherwise. Raises SequenceNotFoundError, and CapacityExhaustedError if too many
        calls wait."""
        self.sequences.step_unanswered(
            condition,
            request.sequence_id,
            request.step,
            request.body,
            partial(self._begin, request),
            request.size,
            partial(self._go_on_to, request),
        )

    def _begin(self, request: ConditionalRequest, held: HeldSequence[Verdict]) -> Callable[[], Awaitable[Verdict]]:
        """Begins with a call whose condition is met."""
        return self.submit(request.decode(), held)

    def _go_on_to(self, request: ConditionalRequest, before: VerifyWork) -> NextWork | None:
        """The same on the device thread. All others wait meanwhile, so a longer call is left to the event loop."""
        return self.go_on(before, request.decode) if request.size <= DECODED_BETWEEN_PASSES_BYTES else None

    async def _judge(self, held: HeldSequence[Verdict], call: VerifyCall) -> Verdict:
        return await self._verdict(held, self._submit(held, call))

    def _submit(self, held: HeldSequence[Verdict], call: VerifyCall) -> VerifyWork:
        """Moves the sequence to the position of the call, and has the engine judge the proposal."""
        call = judgeable(call, held, held.own_proposal)
        self.sequences.check_position(held, call.base_length, call.appended, fed_count(call))
        self.sequences.commit(held, call.base_length, call.appended)
        work = work_of(held, call, self.facts.vocab_size)
        if held.grammar is not None:
            output = held.cached.tokens[held.prompt_length :]
            work.masking = self.masks.begin(held.grammar, output, call.proposed, work.parents)
        held.cached.replace_from(held.length, call.proposed)
        try:
            held.work = self.engine.submit(work)
        except Exception:
            held.cached.replace_from(held.length, [])
            raise
        return work

    async def _verdict(self, held: HeldSequence[Verdict], work: VerifyWork) -> Verdict:
        """Waits for the verdict."""
        call, committed = work.call, held.length
        try:
            await work.future
            if call.late is not None:
                await self._judge_late(work, call.late)
        except Exception as error:
            self.late_outcomes[LateOutcome.WITHDRAWN] += isinstance(error, WithdrawnError)
            held.cached.replace_from(committed, [])
            raise
        held.length = committed + sum(len(one.tokens) for one in work.rounds)
        held.used_step = work.step
        held.own_proposal = work.own_proposal
        return Verdict(
            path=work.first_path,
            rounds=work.rounds,
            length=held.length,
            logprobs=work.logprobs,
            queue_time=work.queue_time,
            compute_time=work.compute_time,
            proposing_time=work.proposing_time,
            batch_token_count=work.batch_token_count,
            target_probabilities=work.target_probabilities,
            draft_probabilities=sent_probabilities(work) if call.include_probabilities else [],
            rollback_time=work.rollback_time,
            features=work.features,
            proposal=held.own_proposal,
            forced=await self._forced(held, call.max_forced),
            has_gone_on_plain=work.has_gone_on_plain,
            cached_token_count=work.sequence.kept_length or 0,
        )

    async def _judge_late(self, work: VerifyWork, late: LateRows) -> None:
        """Judges a work whose pass was over before its distributions had come, once they have. Raises WithdrawnError if
        they do not."""
        if work.unjudged is None:
            self.late_outcomes[LateOutcome.IN_TIME] += 1
            return
        rows = await late.wait()
        await self.engine.call(partial(self._unjudged.judge, work, rows))
        self.late_outcomes[LateOutcome.WAITED_FOR] += 1
        if work.error is not None:
            raise work.error

    async def _forced(self, held: HeldSequence[Verdict], most: int) -> list[int]:
        """The tokens that have to follow, up to `most`, as the structured output says."""
        if held.grammar is None or not most:
            return []
        return await self.masks.forced(held.grammar, held.cached.tokens[held.prompt_length :], most)

    def advance(self, works: list[Work], logits: Tensor) -> None:
        self._advance(works, logits)
        judged = [work for work in works if isinstance(work, VerifyWork) and work.unjudged is None]
        if self._drafter is not None:
            seconds = self._drafter.draft(judged)
            for work in works:
                if isinstance(work, VerifyWork):
                    work.proposing_time += seconds

    def _advance(self, works: list[Work], logits: Tensor) -> None:
        verifying = [work for work in works if isinstance(work, VerifyWork)]
        if len(verifying) < len(works):
            rows = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
            for work in works:
                if isinstance(work, ScoreWork | TreeScoreWork):
                    work.take(rows[work])
            logits = torch.cat([logits[:0], *(rows[work] for work in verifying)])
        if (judged := self._unjudged.take_out(verifying, logits)) is not None:
            advance_verification(*judged)

    async def stop(self) -> None:
        await super().stop()
        self.masks.end()

    @staticmethod
    def caller() -> str:
        return client_name()


def self_drafter(config: EngineConfig, facts: ModelFacts, runner: Runner) -> SelfDrafter | None:
    """What drafts for a target with a head. Raises ModelRefusedError for a head that cannot draft as configured."""
    if not isinstance(runner, DraftingRunner):
        if config.head_tree_tokens:
            raise ModelRefusedError("--head-tree-tokens: the target has no head; give it one with --head")
        return None
    tree_tokens = min(config.head_tree_tokens, config.max_num_speculative_tokens)
    if tree_tokens and (runner.no_trees or not isinstance(runner, TreeDraftingRunner)):
        raise ModelRefusedError(f"--head-tree-tokens: {runner.no_trees or 'this head drafts chains alone'}")
    return SelfDrafter(runner, facts.max_model_len, facts.vocab_size, tree_tokens)


def fed_count(call: VerifyCall) -> int:
    """Tokens for which there has to be room after those that are committed with a call: all of its proposal and then,
    for the further rounds of a run, what may stay of it and come after that. What a head proposes fits what is left."""
    depth = len(call.proposed) if call.tree is None else max(call.tree.depths)
    return max(len(call.proposed), depth + (call.run_length - 1) * (1 + call.next_count))


def work_of(held: HeldSequence[Verdict], call: VerifyCall, vocab_size: int) -> VerifyWork:
    """The engine's work for a call, not submitted yet."""
    return VerifyWork(
        sequence=held.cached,
        row_count=len(call.proposed) + 1,
        parents=None if call.tree is None else call.tree.parents,
        feature_layers=call.feature_layers,
        held=held,
        call=call,
        vocab_size=vocab_size,
    )


def judgeable(call: VerifyCall, held: HeldSequence[Verdict], own: OwnProposal | None) -> VerifyCall:
    """The call with all that its judgement needs; `own` is what the target proposed last. Raises NotSupportedError for
    a proposal that cannot be judged as the sequence wants, and what `with_kept` raises: nothing is changed then."""
    if call.tree is not None and held.options.lenience < 1.0:
        raise NotSupportedError("proposal.parent_indices: lenience below 1 judges chains alone")
    return with_kept(own, call)


def with_kept(own: OwnProposal | None, call: VerifyCall) -> VerifyCall:
    """The call with the distributions that the target has kept with its `own` proposal, if it names them. Raises
    InvalidDistributionError if they are not here: nothing is changed then."""
    if call.kept_step is None:
        return call
    if own is None:
        raise not_kept(call.kept_step)
    length = call.base_length + len(call.appended)
    return call._replace(draft=own.beginning(call.kept_step, length, call.proposed))

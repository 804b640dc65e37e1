"""The state of the draft process: open sequences, drafters, and the model if there is one."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from draft_service.config import DRAFT_SHARE, DraftConfig, VocabularyChoice
from draft_service.drafters import make_drafters, why_not, without_tables
from draft_service.drafters.interface import Proposer
from draft_service.proposal import DENSE_BYTES, AheadOrder, Deliver, Drafted, ProposeCall, nothing_drafted
from draft_service.table_file import read_tables
from draft_service.translation.translations import Translations
from draft_service.translation.vocabulary import MAX_TOKEN_ID
from specpair.errors import InvalidFieldError, ModelRefusedError, SequenceNotFoundError, VocabularyMismatchError
from specpair.model_info import ModelInfo, TokenizerFiles, VocabularyMethod, VocabularyTranslation
from specpair.options import Drafter, Encoding, Rule, SamplingOptions, SequenceOptions, check_range
from specpair.rpc.sizes import MAX_MESSAGE_BYTES
from specpair.sequences.cache_owner import NoCaches
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence_limits import SequenceLimits
from specpair.sequences.sequence_store import SequenceStore
from specpair.server.identity import client_name
from specpair.speculation.tables import Tables

if TYPE_CHECKING:
    from draft_service.model_host import DraftModel
    from specpair.engine.engine import Engine

log = logging.getLogger(__name__)

FRAME_BYTES = 65536
"""Room for everything in an answer except its rows."""


class DraftHost:
    """Created by `start`, ended by `stop`."""

    def __init__(self, config: DraftConfig, model: "DraftModel | None", tables: Tables | None):
        self.model = model
        self.instance_id = uuid.uuid4().hex if model is None else model.instance_id
        self.max_num_speculative_tokens = (
            min(config.max_num_speculative_tokens, config.max_model_len - 1)
            if model is None
            else model.max_num_speculative_tokens
        )
        self.sequences = (
            SequenceStore[Drafted](NoCaches(), own_limits(config), client_name) if model is None else model.sequences
        )
        if model is not None:
            model.ahead.most_rows = config.max_ahead_rows
        self._drafters = make_drafters({} if model is None else model.drafters(), tables)
        self._translating = {} if model is None else without_tables(self._drafters) | model.translating_drafters()
        self.translations = Translations(
            None if model is None else model.tokenizer(),
            None if config.vocabulary is VocabularyChoice.AUTO else VocabularyMethod(config.vocabulary),
            lambda name: model is not None and model.translated.is_in_use(name),
        )
        self._when_read: dict[HeldSequence[Drafted], Callable[[], object]] = {}
        """What to call once the prompt of a sequence is read."""
        self._default = config.drafter
        if config.drafter not in self._drafters:
            raise ModelRefusedError(f"--drafter: {why_not(config.drafter)}")
        log.info("proposing by %s; on request also by %s", self.drafters[0], ", ".join(self.drafters[1:]))

    @classmethod
    async def start(cls, config: DraftConfig) -> Self:
        """Loads model and tables, if configured, in a thread. Raises ModelRefusedError with the reason."""
        model = None if config.engine is None else await load_model(config)
        try:
            if model is not None:
                await model.accelerate(config)
            tokenizer = None if model is None else model.tokenizer()
            tables = (
                None if config.table is None else await asyncio.to_thread(read_tables, Path(config.table), tokenizer)
            )
            return cls(config, model, tables)
        except BaseException:
            if model is not None:
                await model.stop()
            raise

    @property
    def engine(self) -> "Engine":
        """The model's engine; there must be a model."""
        assert self.model is not None
        return self.model.engine

    @property
    def drafters(self) -> tuple[Drafter, ...]:
        """The available drafters, the default one first."""
        return (self._default, *(drafter for drafter in self._drafters if drafter is not self._default))

    async def open(self, sequence_id: str, token_ids: list[int], prompt_length: int, options: SequenceOptions) -> None:
        """Opens a sequence; its drafter may start work on it at once."""
        proposer = self._proposer(options)
        translation = self.translations.get(options.target_vocabulary) if options.target_vocabulary else None
        # The target's vocabulary may be padded to more or fewer ids than the draft's.
        known = self.sequences.limits.vocab_size_of(options)
        if translation is not None:
            check_range("vocab_size", known, 1, MAX_TOKEN_ID)
        self._check_dense(options, known)
        options = replace(
            options,
            sampling=options.sampling.within(known),
            vocab_size=min(known, options.vocab_size or known),
        )
        structured = None if translation is not None else options.structured_output  # masks are of its own vocabulary
        grammar = None if self.model is None else await self.model.grammars.compile_if_possible(structured)
        held = self.sequences.open(sequence_id, token_ids, prompt_length, options)
        if grammar is not None:
            self.sequences.follow_grammar(held, grammar)
        if translation is not None and self.model is not None:
            self.model.translated.open(held.cached, translation)
        proposer.begin(held)

    def _check_dense(self, options: SequenceOptions, vocab_size: int) -> None:
        """Raises InvalidFieldError if dense rows would not fit into a message. Without a model the client chooses the
        vocabulary's size."""
        most = (MAX_MESSAGE_BYTES - FRAME_BYTES) // (DENSE_BYTES * self.max_num_speculative_tokens)
        if options.encoding is Encoding.DENSE and options.rule is not Rule.COUPLED and vocab_size > most:
            raise InvalidFieldError(
                "encoding", f"is dense, but a vocabulary of {vocab_size} is too large for that", limit=most
            )

    async def rollback(self, sequence_id: str, length: int) -> int:
        held = self.sequences.get(sequence_id)
        self._proposer(held.options).forget(held)
        return await self.sequences.rollback(sequence_id, length)

    async def fork(
        self, sequence_id: str, forked_sequence_id: str, length: int | None, sampling: SamplingOptions | None
    ) -> int:
        if sampling is not None:
            sampling = sampling.within(self.sequences.limits.vocab_size_of(self.sequences.get(sequence_id).options))
        return await self.sequences.fork(sequence_id, forked_sequence_id, length, sampling)

    async def close(self, sequence_id: str) -> None:
        self.sequences.close(sequence_id)

    async def stop(self) -> None:
        self.sequences.close_all()
        if self.model is not None:
            await self.model.stop()

    async def propose(self, call: ProposeCall, body: object) -> Drafted:
        """The proposal of one call, drawn once for each step."""
        self._check(call)

        async def compute(held: HeldSequence[Drafted]) -> Drafted:
            self.sequences.check_position(held, call.base_length, call.appended, 1)
            room = self.sequences.limits.max_model_len - call.base_length - len(call.appended)
            tree_room = 0 if self.model is not None and self.model.no_trees else room
            counts = {"count": min(call.count, room), "max_tree_tokens": min(call.max_tree_tokens, tree_room)}
            return await self._propose(held, replace(call, **counts))

        return await self.sequences.step(call.sequence_id, call.step, body, compute)

    def take(self, call: ProposeCall, body: object) -> Drafted | None:
        """The same for a caller that has the proposal: it is not drawn if it is not here any more. None then; the
        sequence has the call's tokens all the same, unless another call is under way."""
        self._check(call)
        held = self.sequences.get(call.sequence_id)
        proposer = self._proposer(held.options)
        find = partial(self._pass_over, call=call) if call.is_plain else partial(proposer.ready, call=call)
        drafted = self.sequences.step_at_once(call.sequence_id, call.step, body, find)
        if drafted is None and call.step > held.last_step and not held.is_under_work:
            self.sequences.check_position(held, call.base_length, call.appended, 1)
            proposer.forget(held)
            self.sequences.commit(held, call.base_length, call.appended)
        return drafted

    def is_reading(self, sequence_id: str) -> bool:
        """Whether the prompt is being read. Raises SequenceNotFoundError."""
        prefill = self.sequences.get(sequence_id).prefill
        return prefill is not None and not prefill.done()

    def when_read(self, sequence_id: str, then: Callable[[], object]) -> None:
        """Calls `then` once the prompt, which is being read, has been, or the sequence is closed. Only the last one
        that was given is called, so that no client fills the memory."""
        held = self.sequences.get(sequence_id)
        assert held.prefill is not None
        if held not in self._when_read:
            held.prefill.add_done_callback(lambda _: self._when_read.pop(held)())
        self._when_read[held] = then

    def _check(self, call: ProposeCall) -> None:
        check_range("num_speculative_tokens", call.count, 1, self.max_num_speculative_tokens)
        check_range("min_confidence", call.min_confidence, 0.0, 1.0)
        check_range("max_tree_tokens", call.max_tree_tokens, 0, self.max_num_speculative_tokens)

    def _pass_over(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        """The answer to a call for which nothing is proposed; the sequence has the call's tokens then."""
        self.sequences.check_position(held, call.base_length, call.appended, 1)
        proposer = self._proposer(held.options)
        proposer.pass_over(held, call)
        self.sequences.commit(held, call.base_length, call.appended)
        return nothing_drafted(held.options.drafter or self._default)

    async def _propose(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        if call.is_plain:
            return self._pass_over(held, call)
        proposer = self._proposer(held.options)
        prepared = proposer.prepared(held, call)
        if prepared is None:
            self.sequences.commit(held, call.base_length, call.appended)
        elif (drafted := await prepared) is not None:
            return drafted
        return await proposer.propose(held, call)

    def work_ahead(self, call: ProposeCall, drafted: Drafted, order: AheadOrder, deliver: Deliver) -> None:
        """Prepares the step after a call that was answered with `drafted`, in the background, and delivers what it
        prepared. Nothing happens if the sequence went on meanwhile."""
        with suppress(SequenceNotFoundError):
            held = self.sequences.get(call.sequence_id)
            self._proposer(held.options).work_ahead(held, call, drafted, order, deliver)

    def forget(self, held: HeldSequence[Drafted]) -> None:
        """Drops what was prepared for a sequence."""
        self._proposer(held.options).forget(held)

    def info(self) -> ModelInfo:
        info = self._own_info() if self.model is None else self.model.info()
        guessing = None if self.model is None else self.model.guessing
        if guessing is not None:
            info = replace(info, own_draft=guessing.by.name, own_num_speculative_tokens=guessing.most)
        beams = info.runs_trees and self.model is not None
        return replace(
            info,
            drafters=self.drafters,
            takes_draft_index=True,
            runs_beams=beams,
            translations=self.translations.facts,
        )

    async def take_target_tokenizer(self, files: TokenizerFiles) -> VocabularyTranslation:
        """Takes the tokenizer of a target with another vocabulary. Raises what Translations.take does, and
        VocabularyMismatchError if the model has an encoder."""
        if self.model is not None and self.model.facts.encoder is not None:
            raise VocabularyMismatchError("the draft has an encoder, and what it reads is not translated")
        return (await self.translations.take(files)).facts

    def tokenizer(self) -> TokenizerFiles | None:
        return None if self.model is None else self.model.tokenizer()

    def _proposer(self, options: SequenceOptions) -> Proposer:
        """The drafter that the options choose. Raises InvalidFieldError if it is not available."""
        wanted = options.drafter or self._default
        if options.target_vocabulary and wanted in self._translating:
            return self._translating[wanted]
        if options.target_vocabulary and wanted in self._drafters:
            raise InvalidFieldError("drafter", f"{wanted} has counts of another vocabulary than the target's")
        if wanted not in self._drafters:
            names = ", ".join(self.drafters)
            raise InvalidFieldError("drafter", f"{why_not(wanted)}; available are {names}", available=names)
        return self._drafters[wanted]

    def _own_info(self) -> ModelInfo:
        """Info without a model. A vocabulary of 0 means any size."""
        limits = self.sequences.limits
        return ModelInfo(
            instance_id=self.instance_id,
            model_name=self._default.value,
            architecture="none",
            parameter_count=0,
            vocab_size=limits.vocab_size,
            max_model_len=limits.max_model_len,
            max_num_speculative_tokens=self.max_num_speculative_tokens,
            max_num_seqs=limits.most_of_one_client,
            dtype="none",
            device="cpu",
            cache="none",
            block_size=0,
            block_count=0,
            free_block_count=0,
            sequence_count=len(self.sequences),
            eos_token_ids=(),
            deterministic=True,
        )


async def load_model(config: DraftConfig) -> "DraftModel":
    """Loads the model into its engine. transformers is imported only here."""
    from draft_service.model_host import DraftModel

    assert config.engine is not None
    share = config.engine.gpu_memory_utilization * (1.0 if config.second_model is None else DRAFT_SHARE)
    return await DraftModel.start(replace(config.engine, gpu_memory_utilization=share))


def own_limits(config: DraftConfig) -> SequenceLimits:
    """Limits of a draft without a model."""
    return SequenceLimits(
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_seqs_per_client=config.max_num_seqs_per_client,
        vocab_size=0,
        lease_seconds=config.sequence_lease,
        max_encoder_len=None,
    )

"""The open sequences of a process: who is where, and what was answered.

Draft and target share it. It holds the contract's position rules: a call names the step and the tokens it
counts on; what is held beyond them is rolled back; a repeated step is answered from memory. Runs on the
event loop; every check comes before the first change, so a refused call changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import torch

from specpair.engine.sequence import Sequence
from specpair.errors import (
    BaseLengthMismatchError,
    CapacityExhaustedError,
    ConflictingBodyError,
    InvalidFieldError,
    LengthNotReachedError,
    PromptTooLongError,
    SequenceNotFoundError,
    StaleStepError,
)
from specpair.options import SamplingOptions, SequenceOptions
from specpair.speculation.adjustments import NamedTokens, RowBlock
from specpair.speculation.token_index import TokenIndex

Answer = TypeVar("Answer")


class CacheOwner(Protocol):
    """What keeps keys and values of sequences: the engine."""

    def fork(self, source: Sequence, length: int) -> Sequence:
        """A sequence of the first `length` tokens of an idle one."""
        ...

    def close(self, sequence: Sequence) -> None:
        """Frees what is kept of a sequence."""
        ...


class NoCaches:
    """For sequences that no model reads: there is nothing to keep."""

    def fork(self, source: Sequence, length: int) -> Sequence:
        return Sequence(source.tokens[:length])

    def close(self, sequence: Sequence) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class SequenceLimits:
    """What a sequence may be."""

    max_model_len: int
    max_num_seqs: int
    vocab_size: int
    """Token ids are below it; 0 without a model: each sequence then says its own."""

    def vocab_size_of(self, options: SequenceOptions) -> int:
        """What token ids of a sequence are below. Raises InvalidFieldError if nobody says."""
        if self.vocab_size:
            return self.vocab_size
        if options.vocab_size is None:
            raise InvalidFieldError("vocab_size", "must be set: without a model nothing else limits the token ids")
        return options.vocab_size


@dataclass(eq=False)
class HeldSequence(Generic[Answer]):
    """One open sequence."""

    options: SequenceOptions
    opened_with: Any
    """The request that made it, to know a repetition."""
    prompt_length: int
    cached: Sequence
    length: int
    """Committed tokens; `cached.tokens` may go on with tokens that are only proposed."""
    last_step: int = -1
    last_body: Any = None
    answer: "asyncio.Task[Answer] | None" = field(default=None, repr=False)
    prefill: "asyncio.Task[None] | None" = field(default=None, repr=False)
    """Work ahead of the first call; the sequence may not be changed until it is done."""

    _named: NamedTokens | None = field(default=None, repr=False)
    _index: TokenIndex = field(default_factory=TokenIndex, repr=False)

    def index(self) -> TokenIndex:
        """An index of the committed tokens, kept up to date at each call; event loop only."""
        self._index.follow(self.cached.tokens, self.length)
        return self._index

    def row_block(self, row_count: int, device: torch.device) -> RowBlock:
        """What the options make of the logits behind the last `row_count` tokens; for the device thread."""
        sampling = self.options.sampling
        if self._named is None:
            self._named = NamedTokens.of(sampling, self.cached.tokens[: self.prompt_length], device)
        return RowBlock(sampling, self._named, self.cached.tokens, self.prompt_length, row_count)

    def cut(self, length: int) -> None:
        """The tokens from `length` on are gone; those of the prompt among them are output when they come again."""
        self.length = length
        self._index.truncate(length)
        if length < self.prompt_length:
            self.prompt_length = length
            self._named = None

    @property
    def is_busy(self) -> bool:
        return self.answer is not None and not self.answer.done()


class SequenceStore(Generic[Answer]):
    """All open sequences of a process. `Answer` is what its hot call returns."""

    def __init__(self, caches: CacheOwner, limits: SequenceLimits):
        self._caches = caches
        self.limits = limits
        self._held: dict[str, HeldSequence[Answer]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, sequence_id: str) -> HeldSequence[Answer]:
        held = self._held.get(sequence_id)
        if held is None:
            raise SequenceNotFoundError(sequence_id)
        return held

    def open(
        self, sequence_id: str, token_ids: list[int], prompt_length: int, options: SequenceOptions
    ) -> HeldSequence[Answer]:
        """Registers a sequence; the same id with the same body gives the same sequence."""
        body = (token_ids, prompt_length, options)
        if (known := self._known(sequence_id, body)) is not None:
            return known
        if not token_ids:
            raise InvalidFieldError("token_ids", "is empty; a sequence has at least one token", limit=1)
        if len(token_ids) >= self.limits.max_model_len:
            raise PromptTooLongError(len(token_ids), self.limits.max_model_len - 1)
        self.check_tokens("token_ids", token_ids, options)
        options.sampling.check_vocabulary(self.limits.vocab_size_of(options))
        self._check_room()
        held: HeldSequence[Answer] = HeldSequence(
            options=options,
            opened_with=body,
            prompt_length=prompt_length,
            cached=Sequence(list(token_ids)),
            length=len(token_ids),
        )
        self._held[sequence_id] = held
        return held

    async def rollback(self, sequence_id: str, length: int) -> int:
        """Drops the tokens from `length` on; the length now."""
        held = await self._idle(sequence_id)
        if not 1 <= length <= held.length:
            raise LengthNotReachedError(length, held.length)
        held.cached.replace_from(length, [])
        held.cut(length)
        held.answer = None  # it speaks of tokens that are gone; its step stays taken
        return length

    async def fork(self, sequence_id: str, forked_id: str, length: int | None, sampling: SamplingOptions | None) -> int:
        """Opens `forked_id` with the first tokens of another sequence; its length."""
        body = (sequence_id, length, sampling)
        if (known := self._known(forked_id, body)) is not None:
            return known.length
        held = await self._idle(sequence_id)
        if (known := self._known(forked_id, body)) is not None:  # made while this call waited
            return known.length
        length = held.length if length is None else length
        if not 1 <= length <= held.length:
            raise LengthNotReachedError(length, held.length)
        options = held.options if sampling is None else replace(held.options, sampling=sampling)
        options.sampling.check_vocabulary(self.limits.vocab_size_of(options))
        self._check_room()
        # With the same seed, the steps that decided the shared tokens must not draw again.
        is_same_noise = options.sampling.seed == held.options.sampling.seed
        self._held[forked_id] = HeldSequence(
            options=options,
            opened_with=body,
            prompt_length=min(held.prompt_length, length),
            cached=self._caches.fork(held.cached, length),
            length=length,
            last_step=held.last_step if is_same_noise else -1,
        )
        return length

    def close(self, sequence_id: str) -> None:
        """Forgets the sequence and drops its work; closing an unknown one is no error."""
        held = self._held.pop(sequence_id, None)
        if held is None:
            return
        for task in (held.answer, held.prefill):
            if task is not None:
                task.cancel()
        self._caches.close(held.cached)

    def close_all(self) -> None:
        for sequence_id in list(self._held):
            self.close(sequence_id)

    async def step(
        self, sequence_id: str, step: int, body: Any, compute: Callable[[HeldSequence[Answer]], Awaitable[Answer]]
    ) -> Answer:
        """The answer of one step: computed once, repeated from memory.

        The computation outlives a caller that goes away, so that a retry finds its answer. One that fails
        leaves the step free to be tried again.
        """
        held = self.get(sequence_id)
        if step == held.last_step and held.answer is not None:
            if body != held.last_body:
                raise ConflictingBodyError(f"step {step} was taken with another body", last_step=step)
            return await wait_for_answer(held.answer, sequence_id)
        if step <= held.last_step:
            raise StaleStepError(f"step {step} is past; the last one was {held.last_step}", last_step=held.last_step)
        if held.is_busy:
            raise StaleStepError(f"step {held.last_step} is still under way", last_step=held.last_step)
        before = (held.last_step, held.last_body, held.answer)

        async def compute_or_restore() -> Answer:
            try:
                await settled(held)
                return await compute(held)
            except BaseException:
                held.last_step, held.last_body, held.answer = before
                raise

        task = asyncio.get_running_loop().create_task(compute_or_restore())
        held.last_step, held.last_body, held.answer = step, body, task
        return await wait_for_answer(task, sequence_id)

    def check_position(self, held: HeldSequence[Answer], base_length: int, appended: list[int], extra: int) -> None:
        """Raises unless the call's tokens, and `extra` more, can stand at its position."""
        if base_length > held.length:
            raise BaseLengthMismatchError(base_length, held.length)
        if base_length < 1:
            raise InvalidFieldError("base_length", f"is {base_length}; it must be at least 1", limit=1)
        self.check_tokens("appended_token_ids", appended, held.options)
        length = base_length + len(appended) + extra
        if length > self.limits.max_model_len:
            raise InvalidFieldError(
                "base_length",
                f"with the tokens after it comes to {length}; at most {self.limits.max_model_len} fit",
                limit=self.limits.max_model_len,
            )

    def commit(self, held: HeldSequence[Answer], base_length: int, appended: list[int]) -> None:
        """Moves the sequence to the caller's position, rolling back what is held beyond it."""
        held.cached.replace_from(base_length, appended)
        held.cut(base_length)
        held.length = len(held.cached.tokens)

    def check_tokens(self, name: str, token_ids: list[int], options: SequenceOptions) -> None:
        limit = self.limits.vocab_size_of(options)
        if token_ids and (worst := max(token_ids)) >= limit:
            raise InvalidFieldError(name, f"holds {worst}; ids are below {limit}", limit=limit - 1)

    async def _idle(self, sequence_id: str) -> HeldSequence[Answer]:
        """The sequence, once nothing works on it; StaleStepError if a call is under way."""
        held = self.get(sequence_id)
        await settled(held)
        if self._held.get(sequence_id) is not held:  # closed meanwhile, and perhaps opened anew
            raise SequenceNotFoundError(sequence_id)
        if held.is_busy:
            raise StaleStepError(f"step {held.last_step} is still under way", last_step=held.last_step)
        return held

    def _known(self, sequence_id: str, body: Any) -> HeldSequence[Answer] | None:
        """The sequence that the same request made before. Raises ConflictingBodyError if it was another request."""
        known = self._held.get(sequence_id)
        if known is not None and known.opened_with != body:
            raise ConflictingBodyError(f"sequence {sequence_id!r} is open with another body")
        return known

    def _check_room(self) -> None:
        if len(self._held) >= self.limits.max_num_seqs:
            raise CapacityExhaustedError(
                f"{len(self._held)} sequences are open, the most that are allowed", limit=self.limits.max_num_seqs
            )


async def settled(held: HeldSequence[Any]) -> None:
    """Until the prefill is done; how it ended shows in the call that needs it."""
    if held.prefill is not None and not held.prefill.done():
        await asyncio.wait([held.prefill])


async def wait_for_answer(task: "asyncio.Task[Answer]", sequence_id: str) -> Answer:
    """The task's result; it goes on if the caller is cancelled. A closed sequence is not found any more."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise SequenceNotFoundError(sequence_id) from None
        raise

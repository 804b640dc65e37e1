"""Operations on open sequences, shared by draft and target.

It implements the contract's position rules. A call names its step and the tokens that it assumes; tokens beyond them
are rolled back; a repeated step is answered from memory. Runs on the event loop. All checks come before the first
change, so a refused call changes nothing.
"""

from dataclasses import replace
from typing import Any

from specpair.errors import (
    BaseLengthMismatchError,
    ConflictingBodyError,
    InvalidFieldError,
    LengthNotReachedError,
    PromptTooLongError,
    SequenceNotFoundError,
    StaleStepError,
)
from specpair.grammars.grammar import Grammar, GrammarState
from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.encoder_input import EncoderInput
from specpair.sequences.held_sequence import Answer, HeldSequence, settled
from specpair.sequences.sequence import Sequence
from specpair.sequences.stepped_sequences import SteppedSequences
from specpair.sequences.token_digest import token_digest


class SequenceStore(SteppedSequences[Answer]):
    """The open sequences, addressed by position and step."""

    def open(
        self, sequence_id: str, token_ids: list[int], prompt_length: int, options: SequenceOptions
    ) -> HeldSequence[Answer]:
        """Opens a sequence. A repetition with the same id and body returns the same sequence."""
        body = (token_digest(token_ids), prompt_length, options)
        if (known := self._known(sequence_id, body)) is not None:
            return known
        if not token_ids:
            raise InvalidFieldError("token_ids", "is empty; a sequence has at least one token", limit=1)
        if len(token_ids) >= self.limits.max_model_len:
            raise PromptTooLongError(len(token_ids), self.limits.max_model_len - 1)
        self.check_tokens("token_ids", token_ids, options)
        self.limits.check_encoder(options)
        options.sampling.check_vocabulary(self.limits.vocab_size_of(options))
        self._check_room()
        held: HeldSequence[Answer] = HeldSequence(
            options=options,
            opened_with=body,
            prompt_length=prompt_length,
            cached=Sequence(list(token_ids), encoder_input=EncoderInput.of(options.encoder_ids)),
            length=len(token_ids),
            touched_at=self._clock(),
        )
        self._held[self._key(sequence_id)] = held
        return held

    def follow_grammar(self, held: HeldSequence[Answer], grammar: Grammar) -> None:
        """From now on the sequence knows where its output stands in its structured output."""
        if held.grammar is None:
            held.grammar = GrammarState(grammar)

    async def rollback(self, sequence_id: str, length: int) -> int:
        """Drops the tokens from `length` on. Returns the new length."""
        held = await self._idle(sequence_id)
        if not 1 <= length <= held.length:
            raise LengthNotReachedError(length, held.length)
        held.cached.replace_from(length, [])
        held.cut(length)
        held.answer = held.before = None  # they belong to dropped tokens; their steps stay used
        self._answers.release(held)
        return length

    async def fork(self, sequence_id: str, forked_id: str, length: int | None, sampling: SamplingOptions | None) -> int:
        """Opens `forked_id` with the first tokens of another sequence. Returns its length."""
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
        # With the same seed, steps that drew the shared tokens must not be used again.
        is_same_noise = options.sampling.seed == held.options.sampling.seed
        self._held[self._key(forked_id)] = HeldSequence(
            options=options,
            opened_with=body,
            prompt_length=min(held.prompt_length, length),
            cached=self._caches.fork(held.cached, length),
            length=length,
            last_step=max(held.last_step, held.used_step) if is_same_noise else -1,
            grammar=None if held.grammar is None else held.grammar.fork(),
            touched_at=self._clock(),
        )
        return length

    def check_position(self, held: HeldSequence[Answer], base_length: int, appended: list[int], extra: int) -> None:
        """Raises unless the call's tokens, and `extra` more, fit at its position."""
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
        """Moves the sequence to the caller's position: rolls back to `base_length`, then appends tokens."""
        held.cached.replace_from(base_length, appended)
        held.cut(base_length)
        held.length = len(held.cached.tokens)

    def check_tokens(self, name: str, token_ids: list[int], options: SequenceOptions) -> None:
        limit = self.limits.vocab_size_of(options)
        if token_ids and (worst := max(token_ids)) >= limit:
            raise InvalidFieldError(name, f"holds {worst}; ids are below {limit}", limit=limit - 1)

    async def _idle(self, sequence_id: str) -> HeldSequence[Answer]:
        """The sequence, after its prefill is done. Raises StaleStepError if a call is under way."""
        held = self.get(sequence_id)
        await settled(held)
        if self._held.get(self._key(sequence_id)) is not held:  # closed meanwhile, and perhaps opened anew
            raise SequenceNotFoundError(sequence_id)
        if held.is_busy:
            raise StaleStepError(f"step {held.last_step} is still under way", last_step=held.last_step)
        held.touched_at = self._clock()
        return held

    def _known(self, sequence_id: str, body: Any) -> HeldSequence[Answer] | None:
        """The sequence that the same request opened before, if any. Raises ConflictingBodyError for another body."""
        known = self._held.get(self._key(sequence_id))
        if known is not None:
            if known.opened_with != body:
                raise ConflictingBodyError(f"sequence {sequence_id!r} is open with another body")
            known.touched_at = self._clock()
        return known

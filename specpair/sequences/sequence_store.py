"""The open sequences of a process: who is where, and what was answered.

Draft and target share it. It holds the contract's position rules: a call names the step and the tokens it
counts on; what is held beyond them is rolled back; a repeated step is answered from memory. A sequence belongs
to the client that opened it: for others it does not exist, and the same id is another sequence. Runs on the
event loop; every check comes before the first change, so a refused call changes nothing.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Set
from dataclasses import replace
from typing import Any, Generic, NamedTuple

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
from specpair.sequences.answer_memory import AnswerMemory
from specpair.sequences.cache_owner import CacheOwner
from specpair.sequences.held_sequence import Answer, HeldSequence, settled, wait_for_answer
from specpair.sequences.sequence import Sequence
from specpair.sequences.sequence_limits import Refusal, SequenceLimits
from specpair.sequences.token_digest import token_digest

SHORT_LEASE_SECONDS = 10.0
"""When all places are taken, a sequence that nobody touched for so long makes room: a coordinator that was restarted
is not refused for what it left behind. One whose owner is only slow is opened again, at the cost of time."""


class SequenceKey(NamedTuple):
    """Which sequence is meant: clients choose their ids without knowing of each other."""

    client: str
    sequence_id: str


def anonymous() -> str:
    """Where clients have no names."""
    return ""


class SequenceStore(Generic[Answer]):
    """All open sequences of a process. `Answer` is what its hot call returns."""

    def __init__(
        self,
        caches: CacheOwner,
        limits: SequenceLimits,
        caller: Callable[[], str] = anonymous,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._caches = caches
        self.limits = limits
        self._caller = caller
        """Whose call it is."""
        self._clock = clock
        self._held: dict[SequenceKey, HeldSequence[Answer]] = {}
        self._answers = AnswerMemory()
        self.expired_count = 0
        """Sequences that were closed since nobody touched them."""
        self.refusals: Counter[Refusal] = Counter()
        """Sequences that were not opened, by reason."""

    def __len__(self) -> int:
        return len(self._held)

    def get(self, sequence_id: str) -> HeldSequence[Answer]:
        held = self._held.get(self._key(sequence_id))
        if held is None:
            raise SequenceNotFoundError(sequence_id)
        held.touched_at = self._clock()
        return held

    def open(
        self, sequence_id: str, token_ids: list[int], prompt_length: int, options: SequenceOptions
    ) -> HeldSequence[Answer]:
        """Registers a sequence; the same id with the same body gives the same sequence."""
        body = (token_digest(token_ids), prompt_length, options)
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
            touched_at=self._clock(),
        )
        self._held[self._key(sequence_id)] = held
        return held

    async def rollback(self, sequence_id: str, length: int) -> int:
        """Drops the tokens from `length` on; the length now."""
        held = await self._idle(sequence_id)
        if not 1 <= length <= held.length:
            raise LengthNotReachedError(length, held.length)
        held.cached.replace_from(length, [])
        held.cut(length)
        held.answer = None  # it speaks of tokens that are gone; its step stays taken
        self._answers.release(held)
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
        self._held[self._key(forked_id)] = HeldSequence(
            options=options,
            opened_with=body,
            prompt_length=min(held.prompt_length, length),
            cached=self._caches.fork(held.cached, length),
            length=length,
            last_step=held.last_step if is_same_noise else -1,
            touched_at=self._clock(),
        )
        return length

    def close(self, sequence_id: str) -> None:
        """Forgets the sequence and drops its work; closing an unknown one is no error."""
        self._close(self._key(sequence_id))

    def drop(self, held: HeldSequence[Answer]) -> None:
        """Closes this one, whosever it is, if it is still open."""
        for key, other in self._held.items():
            if other is held:
                self._close(key)
                return

    def close_all(self) -> None:
        for key in list(self._held):
            self._close(key)

    def expire(self) -> None:
        """Closes the sequences whose lease has ended. To be called every few seconds."""
        limit = self._clock() - self.limits.lease_seconds
        for key in [key for key, held in self._idle_sequences() if held.touched_at <= limit]:
            self._give_up(key)

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
        self._answers.release(held)

        async def compute_or_restore() -> Answer:
            try:
                await settled(held)
                answer = await compute(held)
            except BaseException:
                held.last_step, held.last_body, held.answer = before
                if held.is_open and before[2] is not None:
                    self._answers.keep(held, before[2].result().byte_count)
                raise
            finally:
                held.touched_at = self._clock()
            self._answers.keep(held, answer.byte_count)
            return answer

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

    def _key(self, sequence_id: str) -> SequenceKey:
        return SequenceKey(self._caller(), sequence_id)

    async def _idle(self, sequence_id: str) -> HeldSequence[Answer]:
        """The sequence, once nothing works on it; StaleStepError if a call is under way."""
        held = self.get(sequence_id)
        await settled(held)
        if self._held.get(self._key(sequence_id)) is not held:  # closed meanwhile, and perhaps opened anew
            raise SequenceNotFoundError(sequence_id)
        if held.is_busy:
            raise StaleStepError(f"step {held.last_step} is still under way", last_step=held.last_step)
        held.touched_at = self._clock()
        return held

    def _known(self, sequence_id: str, body: Any) -> HeldSequence[Answer] | None:
        """The sequence that the same request made before. Raises ConflictingBodyError if it was another request."""
        known = self._held.get(self._key(sequence_id))
        if known is not None:
            if known.opened_with != body:
                raise ConflictingBodyError(f"sequence {sequence_id!r} is open with another body")
            known.touched_at = self._clock()
        return known

    def _check_room(self) -> None:
        """Raises unless the caller may have another sequence, and there is a place for it, or one whose short lease has
        ended makes one. The last check: what follows it succeeds."""
        caller, own_limit, limit = self._caller(), self.limits.max_num_seqs_per_client, self.limits.max_num_seqs
        own = {key for key in self._held if key.client == caller}
        if own_limit is not None and len(own) >= own_limit:
            words = f"{len(own)} sequences of this client are open, the most that one may have"
            self._make_room(own, Refusal.CLIENT_LIMIT, words, own_limit)
        elif len(self._held) >= limit:
            words = f"{len(self._held)} sequences are open, the most that are allowed"
            self._make_room(self._held.keys(), Refusal.FULL, words, limit)

    def _make_room(self, keys: Set[SequenceKey], refusal: Refusal, words: str, limit: int) -> None:
        """Closes one of these that is spare, or else the one that was idle longest. Raises CapacityExhaustedError if no
        short lease has ended."""
        if spare := [key for key in keys if self._held[key].is_spare]:
            return self._close(min(spare, key=lambda key: self._held[key].touched_at))
        idle = [(key, held) for key, held in self._idle_sequences() if key in keys]
        key, held = min(idle, key=lambda entry: entry[1].touched_at, default=(None, None))
        if key is None or held is None or held.touched_at > self._clock() - SHORT_LEASE_SECONDS:
            self.refusals[refusal] += 1
            raise CapacityExhaustedError(words, limit=limit)
        self._give_up(key)

    def _idle_sequences(self) -> list[tuple[SequenceKey, HeldSequence[Answer]]]:
        """Those without work. The lease of the others begins when their work ends, or a little before."""
        idle: list[tuple[SequenceKey, HeldSequence[Answer]]] = []
        for key, held in self._held.items():
            if held.is_under_work:
                held.touched_at = self._clock()
            else:
                idle.append((key, held))
        return idle

    def _give_up(self, key: SequenceKey) -> None:
        """Its owner, if there still is one, finds it gone and opens it again."""
        self._close(key)
        self.expired_count += 1

    def _close(self, key: SequenceKey) -> None:
        held = self._held.pop(key, None)
        if held is None:
            return
        held.is_open = False
        self._answers.release(held)
        for task in (held.answer, held.prefill):
            if task is not None:
                task.cancel()
        self._caches.close(held.cached)

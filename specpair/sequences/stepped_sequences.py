"""The steps of open sequences: each is computed once and then answered from memory.

Runs on the event loop. Until a step ends its sequence takes no other one. Calls of the step after it may wait for its
answer, each in case it is a certain one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from specpair.errors import (
    CapacityExhaustedError,
    ConditionNotMetError,
    ConflictingBodyError,
    SequenceNotFoundError,
    StaleStepError,
)
from specpair.sequences.cache_owner import CacheOwner
from specpair.sequences.conditional_calls import (
    Condition,
    ConditionalCalls,
    ConditionOutcome,
    WaitingCall,
    begin_first,
    refuse_all,
)
from specpair.sequences.held_sequence import Answer, HeldSequence, settled, wait_for_answer
from specpair.sequences.open_sequences import OpenSequences

Finish = Callable[[], Awaitable[Answer]]
"""Computes an answer, or the rest of it."""


class SteppedSequences(OpenSequences[Answer]):
    """The open sequences, and the calls of their steps."""

    def __init__(self, caches: CacheOwner, *args: Any, **kwargs: Any):
        super().__init__(caches, *args, **kwargs)
        self.conditional_calls = ConditionalCalls()

    async def step(
        self, sequence_id: str, step: int, body: Any, compute: Callable[[HeldSequence[Answer]], Awaitable[Answer]]
    ) -> Answer:
        """The answer of one step: computed once, repeated from memory.

        The computation goes on if the caller is cancelled, so that a retry finds its answer. After a failure the step
        can be tried again.
        """
        held = self.get(sequence_id)

        async def finish() -> Answer:
            await settled(held)
            return await compute(held)

        task = self._taken(held, step, body) or self._start(held, sequence_id, step, body, finish)
        return await wait_for_answer(task, sequence_id)

    async def step_if(
        self,
        condition: Condition[Answer],
        sequence_id: str,
        step: int,
        body: Callable[[], Any],
        begin: Callable[[HeldSequence[Answer]], Finish[Answer]],
        size: int = 0,
    ) -> Answer:
        """The answer of a step that is taken if another one, under way or the last, has a certain answer.

        Waits for that answer. Raises ConditionNotMetError, and changes nothing, if it is another one, if there is none
        because its step failed, and at once if its step is neither under way nor the last one. Raises
        CapacityExhaustedError if too many calls, or more bytes than `size` leaves, are waiting. `body` and `begin` are
        called once the condition is met; `begin` does all that can be done without waiting, so that the work is on its
        way before the callers of the other step have their answers.
        """
        held = self.get(sequence_id)
        if step == held.last_step and held.answer is not None and body() == held.last_body:
            self.conditional_calls.outcomes[ConditionOutcome.REPEATED] += 1
            return await wait_for_answer(held.answer, sequence_id)
        if condition.step != held.last_step or held.answer is None:
            self.conditional_calls.outcomes[ConditionOutcome.LATE] += 1
            raise ConditionNotMetError

        def start() -> "asyncio.Task[Answer]":
            digest = body()
            return self._taken(held, step, digest) or self._start(held, sequence_id, step, digest, begin(held))

        task = await self._met(held, sequence_id, WaitingCall(condition, start), size)
        return await wait_for_answer(task, sequence_id)

    async def _met(
        self, held: HeldSequence[Answer], sequence_id: str, call: WaitingCall[Answer], size: int
    ) -> "asyncio.Task[Answer]":
        """The answer that the call began to compute, or that it shares, once its condition is met."""
        calls = self.conditional_calls
        assert held.answer is not None
        try:
            if held.answer.done():
                begin_first([call], held.answer.result())
                outcome = await call.outcome
            else:
                with calls.waiting(held.waiting, call, self._caller(), size):
                    outcome = await call.outcome
        except (CapacityExhaustedError, asyncio.CancelledError) as error:
            calls.count(error)
            raise
        calls.count(outcome)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _taken(self, held: HeldSequence[Answer], step: int, body: Any) -> "asyncio.Task[Answer] | None":
        """The answer of a step that was taken with the same body; None if the step can be taken now."""
        if step == held.last_step and held.answer is not None:
            if body != held.last_body:
                raise ConflictingBodyError(f"step {step} was taken with another body", last_step=step)
            return held.answer
        if step <= held.last_step:
            raise StaleStepError(f"step {step} is past; the last one was {held.last_step}", last_step=held.last_step)
        if held.is_busy:
            raise StaleStepError(f"step {held.last_step} is still under way", last_step=held.last_step)
        return None

    def _start(
        self, held: HeldSequence[Answer], sequence_id: str, step: int, body: Any, finish: Finish[Answer]
    ) -> "asyncio.Task[Answer]":
        """Takes the step. Calls that depend on it are decided on as soon as it ends."""
        before = (held.last_step, held.last_body, held.answer)
        self._answers.release(held)

        async def compute_or_restore() -> Answer:
            try:
                answer = await finish()
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
        held.waiting = waiting = []

        def decide(task: "asyncio.Task[Answer]") -> None:
            is_gone = held.last_step < step or (held.last_step == step and held.answer is not task)
            if task.cancelled() or not held.is_open:
                refuse_all(waiting, lambda: SequenceNotFoundError(sequence_id))
            elif is_gone:  # it failed, or was rolled back at once
                refuse_all(waiting, ConditionNotMetError)
            else:
                begin_first(waiting, task.result())

        task.add_done_callback(decide)
        return task

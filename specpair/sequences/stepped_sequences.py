"""The steps of open sequences: each is computed once and then answered from memory.

Runs on the event loop. A sequence takes no other step until the last one has ended and, if the device thread began the
next, that is taken over. Calls of the step after it may wait for its answer, each in case it is a certain one; they
get no answer themselves.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from specpair.errors import ConflictingBodyError, StaleStepError
from specpair.sequences.cache_owner import CacheOwner
from specpair.sequences.conditional_calls import (
    BeginOnDevice,
    Begun,
    Condition,
    ConditionalCalls,
    ConditionOutcome,
    WaitingCall,
    begin_first,
    give_up,
    refuse_all,
)
from specpair.sequences.held_sequence import Answer, HeldSequence, TakenStep, settled, wait_for_answer
from specpair.sequences.open_sequences import OpenSequences
from specpair.sequences.sequel import Sequel, SequelOutcome

logger = logging.getLogger(__name__)

Finish = Callable[[], Awaitable[Answer]]
"""Computes an answer, or the rest of it."""


class SteppedSequences(OpenSequences[Answer]):
    """The open sequences, and the calls of their steps."""

    def __init__(self, caches: CacheOwner, *args: Any, **kwargs: Any):
        super().__init__(caches, *args, **kwargs)
        self.conditional_calls = ConditionalCalls()

    async def step(
        self,
        sequence_id: str,
        step: int,
        body: Any,
        compute: Callable[[HeldSequence[Answer]], Awaitable[Answer]],
        sequel: Sequel[Answer] | None = None,
    ) -> Answer:
        """The answer of one step: computed once, repeated from memory. Its `sequel` begins as soon as it is there.

        The computation goes on if the caller is cancelled, so that a retry finds its answer. After a failure the step
        can be tried again.
        """
        held = self.get(sequence_id)

        async def finish() -> Answer:
            await settled(held)
            return await compute(held)

        task = self._taken(held, step, body) or self._start(held, sequence_id, step, body, finish)
        self.note_call(held, step, sequel)
        return await wait_for_answer(task, sequence_id)

    def taken(self, sequence_id: str, step: int) -> TakenStep[Answer] | None:
        """A step that is the last one, or before one to which the process went on by itself. Raises
        SequenceNotFoundError."""
        held = self.get(sequence_id)
        return next((known for known in (held.last, held.before) if known is not None and known.step == step), None)

    def note_call(self, held: HeldSequence[Answer], step: int, sequel: Sequel[Answer] | None) -> None:
        """Notes that the call of a step, taken already, is here. If that is the last step, its sequel begins as soon as
        it has its answer; what is wrong with the sequel is said to its call."""
        last = held.last
        if last is None or step != last.step:
            return
        if held.is_ahead:
            held.is_ahead = False
            self.sequel_outcomes[SequelOutcome.USED] += 1
        waiting = held.waiting
        if sequel is None or any(isinstance(call.condition, Sequel) for call in waiting):
            return

        def end(outcome: ConditionOutcome) -> None:
            if call in waiting:
                waiting.remove(call)

        start = partial(self._gone_on, held, last, sequel)
        call = WaitingCall(sequel, start, end, sequel.begin_on_device, is_last_resort=sequel.is_last_resort)
        if held.is_busy:
            waiting.append(call)
        elif not last.answer.cancelled() and last.answer.exception() is None:
            begin_first([call], last.answer.result())

    def _gone_on(
        self, held: HeldSequence[Answer], last: TakenStep[Answer], sequel: Sequel[Answer], begun: Begun | None
    ) -> "asyncio.Future[Answer]":
        """The answer of a sequel, whose step before has its answer now."""
        answer, step = last.answer.result(), sequel.following_step(last.answer.result())
        begin, body = partial(sequel.begin, answer), lambda: sequel.body(answer)
        return self._begun(held, sequel.sequence_id, step, body, begin, begun, is_sequel=True)

    def step_at_once(
        self, sequence_id: str, step: int, body: Any, find: Callable[[HeldSequence[Answer]], Answer | None]
    ) -> Answer | None:
        """The answer of a step that is here already: `find` moves the sequence there, and returns it. None, with
        nothing changed, if there is none or the step cannot be taken now: `step` says why.

        Raises SequenceNotFoundError.
        """
        held = self.get(sequence_id)
        if step <= held.last_step or held.is_under_work or (answer := find(held)) is None:
            return None
        found: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        found.set_result(answer)
        held.last_step, held.last_body, held.answer, held.waiting = step, body, found, []
        held.before = None
        self._answers.keep(held, answer.byte_count)
        return answer

    def step_unanswered(
        self,
        condition: Condition[Answer],
        sequence_id: str,
        step: int,
        body: Callable[[], Any],
        begin: Callable[[HeldSequence[Answer]], Finish[Answer]],
        size: int = 0,
        begin_on_device: BeginOnDevice | None = None,
    ) -> None:
        """Takes a step if another one, under way or the last, has a certain answer. Its caller gets none: it makes the
        ordinary call as well, which finds the step under way if the condition was met.

        The call waits for that answer, and does nothing if it is another one, if there is none because its step failed,
        or if its step is neither under way nor the last one. That is counted, and nobody is told. Raises
        SequenceNotFoundError, and CapacityExhaustedError if too many calls, or more bytes than `size` leaves, are
        waiting. `body` and `begin` are called once the condition is met; `begin` does all that can be done without
        waiting, so that the work is on its way before the callers of the other step have their answers.
        """
        held, calls = self.get(sequence_id), self.conditional_calls
        if condition.step != held.last_step or held.answer is None:
            calls.count(ConditionOutcome.LATE)
            return
        start = partial(self._begun, held, sequence_id, step, body, begin)
        if not held.is_busy:
            begin_first([WaitingCall(condition, start, calls.count)], held.answer.result())
            return

        def end(outcome: ConditionOutcome) -> None:
            calls.count(outcome)
            leave()

        leave = calls.enter(held.waiting, WaitingCall(condition, start, end, begin_on_device), self._caller(), size)

    def _begun(
        self,
        held: HeldSequence[Answer],
        sequence_id: str,
        step: int,
        body: Callable[[], Any],
        begin: Callable[[HeldSequence[Answer]], Finish[Answer]],
        begun: Begun | None = None,
        *,
        is_sequel: bool = False,
    ) -> "asyncio.Future[Answer]":
        """The answer of a call whose condition is met. A pass waits for such a call; for a bad one no longer."""
        try:
            digest = body()
            if (known := self._taken(held, step, digest)) is not None:
                return known
            if begun is None:
                return self._start(held, sequence_id, step, digest, begin(held), is_sequel=is_sequel)
            answer = self._start(held, sequence_id, step, digest, begun.finish, is_sequel=is_sequel)
            held.work, begun.is_taken = begun.work.future, True
            return answer
        except Exception:
            self._caches.expect_nothing(held.cached)
            raise

    def _taken(self, held: HeldSequence[Answer], step: int, body: Any) -> "asyncio.Future[Answer] | None":
        """The answer of a step that was taken with the same body; None if the step can be taken now."""
        for known in (held.last, held.before):
            if known is not None and step == known.step:
                if body != known.body:
                    raise ConflictingBodyError(f"step {step} was taken with another body", last_step=held.last_step)
                return known.answer
        if step <= (last := max(held.last_step, held.used_step)):
            raise StaleStepError(f"step {step} is past; the last one was {last}", last_step=last)
        if held.is_busy:
            raise StaleStepError(f"step {held.last_step} is still under way", last_step=held.last_step)
        return None

    def _start(
        self,
        held: HeldSequence[Answer],
        sequence_id: str,
        step: int,
        body: Any,
        finish: Finish[Answer],
        *,
        is_sequel: bool = False,
    ) -> "asyncio.Future[Answer]":
        """Takes the step. Calls that depend on it are decided on as soon as it ends."""
        before = (held.last_step, held.last_body, held.answer, held.before)
        kept = held.last if is_sequel else None
        if kept is None:
            self._answers.release(held)
        overtaken = held.is_ahead  # by this step, unless that fails: then the call of the one before may still come

        async def compute_or_restore() -> Answer:
            nonlocal overtaken
            try:
                answer = await finish()
            except BaseException:
                held.last_step, held.last_body, held.answer, held.before = before
                self._drop_sequel(held)
                if held.is_open:
                    held.is_ahead, overtaken = overtaken, False
                    if held.last is not None:
                        self._answers.keep(held, stored_bytes(held.last, held.before))
                raise
            finally:
                held.touched_at = self._clock()
            self._answers.keep(held, answer.byte_count + stored_bytes(held.before))
            return answer

        task = asyncio.get_running_loop().create_task(compute_or_restore())
        held.last_step, held.last_body, held.answer = step, body, task
        held.before, held.is_ahead = kept, is_sequel
        held.waiting = waiting = []

        def decide(task: "asyncio.Future[Answer]") -> None:
            if overtaken:
                self.sequel_outcomes[SequelOutcome.DROPPED] += 1
            begun, held.begun = held.begun, None
            has_failed = not task.cancelled() and task.exception() is not None  # nobody else may look at it
            if task.cancelled() or not held.is_open:
                refuse_all(waiting, ConditionOutcome.ENDED)
            elif has_failed or (held.last_step == step and held.answer is not task):  # or was rolled back at once
                refuse_all(waiting, ConditionOutcome.NOT_MET)
            else:
                begin_first(waiting, task.result(), begun)
            if begun is not None and not begun.is_taken:
                self._lose(held, begun)

        task.add_done_callback(decide)
        return task

    def _lose(self, held: HeldSequence[Answer], begun: Begun) -> None:
        """Ends what the device thread began for a step that was not taken. Its tokens may be in a pass at this moment,
        so that no other step can be taken: the caller opens the sequence again."""
        if not held.is_open:
            give_up(begun.work.future)
            return
        logger.warning("a step that was begun could not be taken; its sequence is closed")
        held.begun = begun
        self.drop(held)


def stored_bytes(*taken: "TakenStep[Any] | None") -> int:
    """Memory of the answers of these steps, all of which are done."""
    return sum(known.answer.result().byte_count for known in taken if known is not None)

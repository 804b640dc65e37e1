"""The device thread: continuous batching over one model.

One thread owns model and cache. Calls hand it Work and await the result; in each turn it schedules, runs one
forward pass over sequences at different positions, lets the service look at the logits, and tells the event
loop once about everything that finished.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from specpair.caches.holding import Segment
from specpair.caches.out_of_memory import is_out_of_memory
from specpair.engine.failures import check_device
from specpair.engine.gathering import Gathering
from specpair.engine.holdings import Holdings, is_holding
from specpair.engine.pass_clock import pass_clock
from specpair.engine.scheduler import Chunk, schedule
from specpair.engine.statistics import EngineStatistics
from specpair.engine.work import BatchSize, Work
from specpair.errors import CapacityExhaustedError, ForwardFailedError, ShuttingDownError
from specpair.models.batch import Batch
from specpair.models.model_runner import ModelRunner
from specpair.sequences.sequence import Sequence

log = logging.getLogger(__name__)

Advance: TypeAlias = Callable[[list[Work], Tensor], None]
"""Looks at the logits `[sum of row_count, vocabulary]` of works whose tokens are all fed. For each it sets
`done`, or `error` and `done`, or appends tokens to the sequence and sets `row_count` for the next pass."""

Job: TypeAlias = Callable[[], None]


class Engine:
    """Runs works on a device thread. All methods are called on the event loop."""

    def __init__(self, runner: ModelRunner, advance: Advance, *, token_budget: int, short: int):
        self._runner = runner
        self.cache = runner.cache
        """To be read only: the device thread owns it."""
        self.statistics = EngineStatistics()
        """To be read only, as well."""
        self._clock = pass_clock(runner.device)  # device thread only
        self._advance = advance
        self._token_budget = token_budget
        self._short = short
        self._inbox: queue.SimpleQueue[list[Work] | Job | None] = queue.SimpleQueue()
        self._new_works: list[Work] = []
        """Of this turn of the event loop."""
        self._works: list[Work] = []  # device thread only, oldest first
        self._gathering = Gathering()  # device thread only
        self._holdings = Holdings(runner.cache, self.statistics)  # device thread only
        self._ran_suspect = False  # device thread only: in the last turn
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[str] = self._loop.create_future()
        """Done, with the reason, when the device thread ended by itself or was given up. Every call fails then, and
        only a new process helps."""
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)
        self._thread.start()

    async def run(self, work: Work) -> None:
        """Until the work is done. Raises its error. If cancelled, the work is dropped at the next turn."""
        if self._closed:
            raise ShuttingDownError
        work.future = self._loop.create_future()
        if not self._new_works:
            self._loop.call_soon(self._hand_over)
        self._new_works.append(work)
        await work.future

    def fork(self, source: Sequence, length: int) -> Sequence:
        """A sequence of the first `length` tokens that shares or copies the cache. `source` must be idle."""
        forked = Sequence(source.tokens[:length], valid_length=length)
        self._inbox.put(lambda: self._holdings.fork(source, forked))
        return forked

    def close(self, sequence: Sequence) -> None:
        """Frees the blocks of a sequence; its work under way, if any, must have been cancelled."""
        self._inbox.put(lambda: self._release(sequence))

    async def check_integrity(self) -> None:
        """Asserts the cache's invariants, on the device thread, after all that was handed to it so far."""
        outcome: asyncio.Future[None] = self._loop.create_future()

        def check() -> None:
            try:
                self.cache.check_integrity()
            except AssertionError as error:
                failure = error
                self._tell(lambda: outcome.set_exception(failure))
            else:
                self._tell(lambda: outcome.set_result(None))

        self._inbox.put(check)
        await outcome

    def ask(self, answer: Callable[[], None]) -> None:
        """Has `answer` called on the device thread: a sign of life, between two forward passes."""
        self._inbox.put(answer)

    def give_up(self) -> None:
        """The forward pass under way does not come back: no new work is taken, and nobody waits for the thread."""
        self._closed = True
        self._note_broken("a forward pass hangs")

    async def stop(self) -> None:
        """Ends the device thread after its forward pass; works under way fail with ShuttingDownError."""
        self._closed = True
        self._inbox.put(None)
        if not self.broken.done():
            await asyncio.to_thread(self._thread.join)

    def _hand_over(self) -> None:
        """All at once: what came in one message goes through the model in one pass."""
        works, self._new_works = self._new_works, []
        self._inbox.put(works)
        if self._closed:  # looked at last: a thread that ends later still finds them
            for work in works:
                work.error = ShuttingDownError()
            settle_futures(works)

    def _note_broken(self, reason: str) -> None:
        if not self.broken.done():
            self.broken.set_result(reason)

    # Everything below runs on the device thread.

    @torch.inference_mode()
    def _run(self) -> None:
        try:
            while self._take_jobs():
                self._turn()
        except BaseException:
            log.exception("the device thread ended")
            self._tell(lambda: self._note_broken("its device thread ended"))
        finally:
            self._closed = True
            self._abandon(self._works)
            self._empty_inbox()

    def _take_jobs(self) -> bool:
        """Takes what is in the inbox, waiting if there is no work, or more about to come. False at the end.

        A failed job is logged.
        """
        while True:
            patience = self._gathering.patience(self._works, time.perf_counter()) if self._works else None
            try:
                job = self._inbox.get(block=patience != 0.0, timeout=patience)
            except queue.Empty:
                return True
            if job is None:
                return False
            if isinstance(job, list):
                self._works += job
                self._gathering.arrive(job)
                continue
            try:
                job()
            except Exception as error:
                check_device(error)
                log.exception("a job of the device thread failed")

    def _empty_inbox(self) -> None:
        """Nobody waits for ever for a thread that has ended."""
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._inbox.get(block=False)
                if isinstance(job, list):
                    self._abandon(job)

    def _abandon(self, works: list[Work]) -> None:
        """At the end of the thread: in whatever state the caches are, nobody looks at them any more."""
        for work in works:
            work.fail(ShuttingDownError())
        self._tell(lambda: settle_futures(works))

    def _turn(self) -> None:
        self._drop_cancelled()
        works = self._prepared(self._company())
        wanted = schedule(works, self._token_budget, self._short)
        if chunks := self._holdings.reserve(wanted, self._works):
            note_start(chunks)
            self._pass(chunks)
        elif wanted:
            self._refuse(min((chunk.work for chunk in wanted), key=self._works.index))

    def _drop_cancelled(self) -> None:
        """Nobody waits for these; others may have what they hold even before it is released."""
        for work in self._works:
            if work.future.done():
                self._holdings.rest(work.sequence)
        self._works = [work for work in self._works if not work.future.done()]

    def _company(self) -> list[Work]:
        """Whose turn it is. A suspect has passes of its own, in turns with all that are none."""
        suspects = [work for work in self._works if work.sequence.is_suspect]
        if not suspects:
            return self._works
        others = [work for work in self._works if not work.sequence.is_suspect]
        self._ran_suspect = not (self._ran_suspect and others)
        return suspects[:1] if self._ran_suspect else others

    def _pass(self, chunks: list[Chunk]) -> None:
        """One forward pass, and what the service makes of its logits."""
        self._clock.begin()
        try:
            logits = self._forward(chunks)
        except Exception as error:
            self._undo(chunks, error)
            return
        row_count, token_count = len(logits), sum(chunk.token_count for chunk in chunks)
        complete = [chunk.work for chunk in chunks if chunk.completes]
        self._advance_or_fail(complete, logits)
        self._clock.end(lambda seconds: self._note_pass(len(chunks), token_count, row_count, seconds))
        self._finish([work for work in complete if work.done])
        self._clock.settle()

    def _note_pass(self, sequence_count: int, token_count: int, row_count: int, seconds: float) -> None:
        """What a pass that is over says of later ones, and to the metrics."""
        self.statistics.add_pass(sequence_count, token_count, row_count, seconds)
        if row_count == token_count:
            self._gathering.add_pass(token_count, seconds)

    def _advance_or_fail(self, complete: list[Work], logits: Tensor) -> None:
        """Lets the service look at the logits of works that are fed. If that fails nobody knows how far it came: it
        is the end of all of them, to be repeated, each alone at first."""
        for work in complete:
            work.done = work.row_count == 0
        wanting = [work for work in complete if not work.done]
        try:
            if wanting:
                self._advance(wanting, logits)
        except Exception as error:
            check_device(error)
            log.exception("what follows a forward pass failed")
            for work in wanting:
                work.sequence.is_suspect = True
                work.fail(ForwardFailedError(), spares_cache=is_out_of_memory(error))

    def _undo(self, chunks: list[Chunk], error: Exception) -> None:
        """After a failed pass: it wrote nothing but the places of its own tokens, so the caches hold what they held.

        Each of several works tries again alone, so that one that fails for its own sake fails nobody else's. One that
        was alone already fails.
        """
        check_device(error)
        log.error("a forward pass of %d sequences failed", len(chunks), exc_info=error)
        for work, token_count, _ in chunks:
            sequence = work.sequence
            sequence.is_suspect = True
            assert sequence.holding is not None
            sequence.valid_length = min(sequence.valid_length, sequence.holding.length - token_count)
        if len(chunks) == 1:
            self._fail(chunks[0].work, error)

    def _fail(self, work: Work, cause: Exception) -> None:
        work.fail(ForwardFailedError(), spares_cache=is_out_of_memory(cause))
        self._finish([work])

    def _prepared(self, works: list[Work]) -> list[Work]:
        """Those that can be fed; the others fail."""
        prepared: list[Work] = []
        for work in works:
            try:
                self._holdings.prepare(work)
                prepared.append(work)
            except Exception as error:
                check_device(error)
                log.exception("a cache could not be prepared")
                self._fail(work, error)
        return prepared

    def _refuse(self, work: Work) -> None:
        """The oldest does not fit. If no other work holds anything, that will not change."""
        if not any(is_holding(other.sequence) for other in self._works if other is not work):
            work.fail(CapacityExhaustedError("the cache is too small for this sequence"), spares_cache=True)
            self._finish([work])

    def _forward(self, chunks: list[Chunk]) -> Tensor:
        segments, token_ids = [], []
        for work, count, _ in chunks:
            holding = work.sequence.holding
            assert holding is not None
            start = holding.length - count
            segments.append(Segment(holding, start, count))
            token_ids.extend(work.sequence.tokens[start : start + count])
        rows = [chunk.work.row_count if chunk.completes else 0 for chunk in chunks]
        logits = self._runner.forward(Batch(segments=segments, token_ids=token_ids, row_counts=rows))
        for chunk in chunks:
            sequence = chunk.work.sequence
            assert sequence.holding is not None
            sequence.valid_length = sequence.holding.length
        return logits

    def _finish(self, works: list[Work]) -> None:
        now = time.perf_counter()
        for work in works:
            work.finished_at = now
            if work.started_at:
                self.statistics.queue_time.add(work.queue_time)
            if work.error is None:
                work.sequence.is_suspect = False
            elif not work.spares_cache:
                work.sequence.valid_length = 0  # whatever it was, it may be in the cache
            self._holdings.rest(work.sequence)
        finished = set(works)
        self._works = [work for work in self._works if work not in finished]
        self._gathering.leave(works, now)
        if works:
            self._tell(lambda: settle_futures(works))

    def _release(self, sequence: Sequence) -> None:
        self._gathering.forget(sequence)
        self._holdings.release(sequence)

    def _tell(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed; nobody waits
            self._loop.call_soon_threadsafe(callback)


def note_start(chunks: list[Chunk]) -> None:
    """Tells the works when their first pass began, and how large their passes are."""
    now = time.perf_counter()
    size = BatchSize(sum(chunk.token_count for chunk in chunks), len(chunks))
    for work, *_ in chunks:
        work.started_at = work.started_at or now
        work.largest_batch = max(work.largest_batch or size, size)


def settle_futures(works: list[Work]) -> None:
    """On the event loop: wakes everybody who waits for these works."""
    for work in works:
        if work.future.done():
            continue
        if work.error is not None:
            work.future.set_exception(work.error)
        else:
            work.future.set_result(None)

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

from specpair.engine.batch import Batch
from specpair.engine.cache import Segment
from specpair.engine.model_runner import ModelRunner
from specpair.engine.scheduler import Chunk, schedule
from specpair.engine.sequence import Sequence, Work
from specpair.errors import CapacityExhaustedError, ShuttingDownError, SpecpairError

log = logging.getLogger(__name__)

Advance: TypeAlias = Callable[[list[Work], Tensor], None]
"""Looks at the logits `[sum of row_count, vocabulary]` of works whose tokens are all fed. For each it sets
`done`, or `error` and `done`, or appends tokens to the sequence and sets `row_count` for the next pass."""

Job: TypeAlias = Callable[[], None]


class EngineFault(SpecpairError):
    """A forward pass failed for a reason of its own; the log has it."""

    def __init__(self) -> None:
        super().__init__("the forward pass failed")


class Engine:
    """Runs works on a device thread. All methods are called on the event loop."""

    def __init__(self, runner: ModelRunner, advance: Advance, *, token_budget: int, short: int):
        self._runner = runner
        self.cache = runner.cache
        """To be read only: the device thread owns it."""
        self._advance = advance
        self._token_budget = token_budget
        self._short = short
        self._inbox: queue.SimpleQueue[Work | Job | None] = queue.SimpleQueue()
        self._works: list[Work] = []  # device thread only, oldest first
        self._idle: dict[Sequence, None] = {}  # device thread only; hold blocks without work, oldest first
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)
        self._thread.start()

    async def run(self, work: Work) -> None:
        """Until the work is done. Raises its error. If cancelled, the work is dropped at the next turn."""
        if self._closed:
            raise ShuttingDownError
        work.future = self._loop.create_future()
        self._inbox.put(work)
        await work.future

    def fork(self, source: Sequence, length: int) -> Sequence:
        """A sequence of the first `length` tokens that shares or copies the cache. `source` must be idle."""
        forked = Sequence(source.tokens[:length])

        def fork_cache() -> None:
            held = min(source.holding.length, source.valid_length, length) if source.holding else 0
            if held:
                with contextlib.suppress(CapacityExhaustedError):  # then it is computed again when needed
                    forked.holding = self.cache.fork(source.holding, held)
                    forked.valid_length = held
                    self._idle[forked] = None

        self._inbox.put(fork_cache)
        return forked

    def close(self, sequence: Sequence) -> None:
        """Frees the blocks of a sequence; its work under way, if any, must have been cancelled."""
        self._inbox.put(lambda: self._release(sequence))

    async def settle(self) -> None:
        """Until the device thread has done everything that was handed to it so far, works aside."""
        reached = self._loop.create_future()
        self._inbox.put(lambda: self._tell(lambda: reached.done() or reached.set_result(None)))
        await reached

    async def check_integrity(self) -> None:
        """Asserts the cache's invariants, on the device thread."""
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

    async def stop(self) -> None:
        """Ends the device thread after its forward pass; works under way fail with ShuttingDownError."""
        self._closed = True
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    # Everything below runs on the device thread.

    @torch.inference_mode()
    def _run(self) -> None:
        while self._take_jobs():
            try:
                self._turn()
            except Exception:
                log.exception("a forward pass failed")
                self._fail_all(EngineFault())
        self._fail_all(ShuttingDownError())

    def _take_jobs(self) -> bool:
        """Takes what is in the inbox, waiting only if there is no work. False at the end."""
        while True:
            try:
                job = self._inbox.get(block=not self._works)
            except queue.Empty:
                return True
            if job is None:
                return False
            if isinstance(job, Work):
                self._works.append(job)
            else:
                job()

    def _turn(self) -> None:
        self._works = [work for work in self._works if not work.future.done()]
        for work in self._works:
            self._prepare(work)
        chunks = self._reserve(schedule(self._works, self._token_budget, self._short))
        if not chunks:
            return
        now = time.perf_counter()
        for chunk in chunks:
            chunk.work.started_at = chunk.work.started_at or now
        logits = self._forward(chunks)
        complete = [chunk.work for chunk in chunks if chunk.completes]
        if complete:
            self._advance(complete, logits)
        self._finish([work for work in complete if work.done])

    def _prepare(self, work: Work) -> None:
        """Makes the holding agree with the tokens."""
        sequence = work.sequence
        self._idle.pop(sequence, None)
        if sequence.holding is None:
            reusable = sequence.tokens[: len(sequence.tokens) - max(1, work.row_count)]
            sequence.holding = self.cache.open(reusable)
            sequence.valid_length = sequence.holding.length
        elif sequence.holding.length > sequence.valid_length:
            self.cache.truncate_to(sequence.holding, sequence.valid_length)
        fed = len(sequence.tokens) - work.row_count
        if sequence.holding.length > fed:  # the rows that are wanted must be fed
            self.cache.truncate_to(sequence.holding, fed)
            sequence.valid_length = fed

    def _reserve(self, chunks: list[Chunk]) -> list[Chunk]:
        """Room for every chunk; takes caches of idle sequences away, then lets the youngest works wait."""
        reserved: list[Chunk] = []
        for chunk in chunks:
            while not self._append(chunk):
                if not self._take_away_idle():
                    break
            else:
                reserved.append(chunk)
        if chunks and not reserved:
            self._make_room(chunks)
        return reserved

    def _append(self, chunk: Chunk) -> bool:
        holding = chunk.work.sequence.holding
        assert holding is not None
        try:
            self.cache.append(holding, chunk.count)
        except CapacityExhaustedError:
            return False
        return True

    def _take_away_idle(self) -> bool:
        """Frees the cache of the sequence that has been idle longest; its tokens are fed again when needed."""
        sequence = next(iter(self._idle), None)
        if sequence is None:
            return False
        del self._idle[sequence]
        # Its tokens may be changing on the loop at this moment, so nothing of it is kept for others.
        self.cache.free(sequence.holding)
        sequence.holding = None
        return True

    def _make_room(self, chunks: list[Chunk]) -> None:
        """Nothing fits: takes the youngest work's cache for the others; one that is alone and too long fails."""
        holders = [w for w in self._works if w.sequence.holding is not None and w.sequence.holding.length]
        if len(holders) > 1:
            self._release(holders[-1].sequence)
            return
        stuck = holders[0] if holders else chunks[0].work
        stuck.error = CapacityExhaustedError("the cache is too small for this sequence")
        stuck.done = True
        self._finish([stuck])

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
            if work.error is not None:
                work.sequence.valid_length = 0  # whatever it was, it may be in the cache
            if work.sequence.holding is not None:
                self._idle[work.sequence] = None
        finished = set(works)
        self._works = [work for work in self._works if work not in finished]
        if works:
            self._tell(lambda: settle_futures(works))

    def _release(self, sequence: Sequence) -> None:
        """Frees a sequence's blocks, keeping what they hold for others with the same beginning."""
        self._idle.pop(sequence, None)
        if sequence.holding is None:
            return
        valid = min(sequence.holding.length, sequence.valid_length)
        self.cache.truncate_to(sequence.holding, valid)
        self.cache.keep(sequence.holding, sequence.tokens[:valid])
        self.cache.free(sequence.holding)
        sequence.holding = None

    def _fail_all(self, error: SpecpairError) -> None:
        """After a failed pass nobody knows what the caches of its works hold: they are dropped."""
        for work in self._works:
            work.error, work.done = error, True
            work.sequence.valid_length = 0
            self._release(work.sequence)
        self._finish(list(self._works))

    def _tell(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed; nobody waits
            self._loop.call_soon_threadsafe(callback)


def settle_futures(works: list[Work]) -> None:
    """On the event loop: wakes everybody who waits for these works."""
    for work in works:
        if work.future.done():
            continue
        if work.error is not None:
            work.future.set_exception(work.error)
        else:
            work.future.set_result(None)

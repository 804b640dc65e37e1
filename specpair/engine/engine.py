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
from collections.abc import Callable
from typing import TypeAlias

import torch

from specpair.engine.failures import check_device
from specpair.engine.statistics import EngineStatistics
from specpair.engine.turns import Advance, Turns
from specpair.engine.work import Work, settle_futures
from specpair.errors import ShuttingDownError
from specpair.models.runner import Runner
from specpair.sequences.sequence import Sequence

log = logging.getLogger(__name__)

Job: TypeAlias = Callable[[], None]


class Engine:
    """Runs works on a device thread. All methods are called on the event loop."""

    def __init__(self, runner: Runner, advance: Advance, *, token_budget: int, short: int):
        self.cache = runner.cache
        """To be read only: the device thread owns it."""
        self.statistics = EngineStatistics()
        """To be read only, as well."""
        self._turns = Turns(  # device thread only
            runner, advance, self.statistics, self._tell, token_budget=token_budget, short=short
        )
        self._inbox: queue.SimpleQueue[list[Work] | Job | None] = queue.SimpleQueue()
        self._new_works: list[Work] = []
        """Of this turn of the event loop."""
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
        self._inbox.put(lambda: self._turns.fork(source, forked))
        return forked

    def close(self, sequence: Sequence) -> None:
        """Frees the blocks of a sequence; its work under way, if any, must have been cancelled."""
        self._inbox.put(lambda: self._turns.release(sequence))

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
                self._turns.turn()
        except BaseException:
            log.exception("the device thread ended")
            self._tell(lambda: self._note_broken("its device thread ended"))
        finally:
            self._closed = True
            self._abandon(self._turns.works)
            self._empty_inbox()

    def _take_jobs(self) -> bool:
        """Takes what is in the inbox, waiting if there is no work, or more about to come. False at the end.

        A failed job is logged.
        """
        while True:
            patience = self._turns.patience()
            try:
                job = self._inbox.get(block=patience != 0.0, timeout=patience)
            except queue.Empty:
                return True
            if job is None:
                return False
            if isinstance(job, list):
                self._turns.add(job)
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

    def _tell(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed; nobody waits
            self._loop.call_soon_threadsafe(callback)

"""The device thread: continuous batching over one model.

One thread owns model and cache. Calls pass it Work and await the result. In each turn the thread schedules works, runs
one forward pass over sequences at different positions, calls the service's `advance` with the logits, and tells the
event loop once about all works that finished.
"""

import asyncio
import contextlib
import logging
import queue
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch

from specpair.engine.device_thread import DeviceThread
from specpair.engine.failures import DeviceLostError, check_device
from specpair.engine.pacing import Pacing
from specpair.engine.statistics import EngineStatistics
from specpair.engine.turns import Advance, Ready, Turns
from specpair.engine.work import Work, settle_futures
from specpair.engine_config import Pace
from specpair.errors import ShuttingDownError
from specpair.models.runner import Runner
from specpair.models.stop_flag import StopFlag
from specpair.sequences.sequence import Sequence

log = logging.getLogger(__name__)

LIKELY = 0.1
"""Chance of a work in the background for which the steps of others are interrupted: it joins after the next of them."""

Job: TypeAlias = Callable[[], None]
Result = TypeVar("Result")


class Engine:
    """Runs works on a device thread. All methods are called on the event loop."""

    def __init__(
        self,
        device: DeviceThread,
        runner: Runner,
        advance: Advance,
        *,
        token_budget: int,
        short: int,
        pace: Pace | None = None,
        ready: Ready | None = None,
    ):
        """`device` loaded the runner; once started, the engine ends it."""
        self.cache = runner.cache
        """Read only: the device thread owns it."""
        self.statistics = EngineStatistics()
        """Read only, too."""
        self.pacing = None if pace is None else Pacing(pace)
        """Device thread only."""
        self.stop_flag = StopFlag()
        """Set when something comes that should not wait for all steps of a pass: it then ends after the next."""
        self._turns = Turns(  # device thread only
            runner,
            advance,
            self.statistics,
            self._tell,
            token_budget=token_budget,
            short=short,
            pacing=self.pacing,
            ready=ready,
            stop=self.stop_flag,
        )
        self._inbox: queue.SimpleQueue[list[Work] | Job | None] = queue.SimpleQueue()
        self._new_works: list[Work] = []
        """Works added in this turn of the event loop."""
        self._calls: set[asyncio.Future[Any]] = set()
        """What is called and not answered yet."""
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[str] = self._loop.create_future()
        """Done, with the reason, when the device thread ended by itself or was given up. From then on every call fails,
        and only a new process helps."""
        self._device = device

    def start(self) -> None:
        """Takes over the device thread. Until then whoever made the thread ends it."""
        self._device.run_last(self._run)

    async def run(self, work: Work) -> None:
        """Runs the work and waits for it. Raises its error. If cancelled, the work is dropped at the next turn."""
        await self.submit(work)

    def submit(self, work: Work) -> "asyncio.Future[None]":
        """Takes the work, which is handed over together with others of this turn of the event loop. The future is done
        when it is finished, and has its error; cancel it to drop the work at the next turn."""
        if self._closed:
            raise ShuttingDownError
        work.future = self._loop.create_future()
        if not self._new_works:
            self._loop.call_soon(self._hand_over)
        self._new_works.append(work)
        return work.future

    def bring_forward(self, work: Work) -> None:
        """From the next turn on, somebody waits for a work that was in the background. A turn in which this changed
        could run the work twice."""
        self._hurry(lambda: self._turns.bring_forward(work))

    def expect_nothing(self, sequence: Sequence) -> None:
        """The call of the sequence that was here is a bad one: no pass waits for it."""
        self._inbox.put(lambda: self._turns.expect_nothing(sequence))

    def fork(self, source: Sequence, length: int) -> Sequence:
        """A sequence of the first `length` tokens that shares or copies the cache. `source` must be idle."""
        tokens, encoder_input = source.tokens[:length], source.encoder_input
        forked = Sequence(tokens, valid_length=length, encoder_input=encoder_input, kept_length=0)
        self._inbox.put(lambda: self._turns.fork(source, forked))
        return forked

    def close(self, sequence: Sequence) -> None:
        """Frees the blocks of a sequence. Cancel its work first, if there is any."""
        self._inbox.put(lambda: self._turns.release(sequence))

    def discard(self, sequences: list[Sequence]) -> None:
        """Frees the blocks of sequences whose content nobody asks for again. Cancel their works first."""
        self._inbox.put(lambda: self._turns.discard(sequences))

    async def call(self, function: Callable[[], Result]) -> Result:
        """What the function returns on the device thread, after everything that was queued before; raises what it
        raises, and ShuttingDownError if the thread ends before."""
        outcome: asyncio.Future[Result] = self._loop.create_future()
        self._calls.add(outcome)
        outcome.add_done_callback(self._calls.discard)

        def settle(setter: Callable[[], object]) -> None:
            if not outcome.done():  # cancelled meanwhile
                setter()

        def run() -> None:
            try:
                result = function()
            except DeviceLostError:
                raise  # it ends the thread, which refuses all calls
            except Exception as error:
                failure = error
                self._tell(lambda: settle(lambda: outcome.set_exception(failure)))
            else:
                self._tell(lambda: settle(lambda: outcome.set_result(result)))

        self._hurry(run)
        if self._closed:  # checked last, as in `_hand_over`
            outcome.set_exception(ShuttingDownError())
        return await outcome

    async def check_integrity(self) -> None:
        """Asserts the cache's invariants."""
        await self.call(self.cache.check_integrity)

    def ask(self, answer: Callable[[], None]) -> None:
        """Calls `answer` on the device thread between two forward passes, as a sign of life."""
        self._hurry(answer)

    def give_up(self, reason: str = "a forward pass hangs") -> None:
        """Called when a forward pass hangs, or a rank is lost: the engine takes no new work from the event loop, and
        `stop` does not wait for the thread."""
        self._closed = True
        self._note_broken(reason)

    async def stop(self) -> None:
        """Ends the device thread after its forward pass; works under way fail with ShuttingDownError."""
        self._closed = True
        self._hurry(None)
        if not self.broken.done():
            await self._device.join()

    def _hand_over(self) -> None:
        """Hands over all new works at once, so that works of one message share a forward pass."""
        works, self._new_works = self._new_works, []
        if any(not work.is_background or work.chance >= LIKELY for work in works):
            self._hurry(works)
        else:
            self._inbox.put(works)
        if self._closed:  # checked last: a thread that ends later finds the works in its inbox
            for work in works:
                work.error = ShuttingDownError()
            settle_futures(works)

    def _hurry(self, job: list[Work] | Job | None) -> None:
        """Gives the device thread something that should not wait for all steps of a pass."""
        self._inbox.put(job)
        self.stop_flag.set()

    def _refuse_calls(self) -> None:
        for outcome in self._calls:
            if not outcome.done():
                outcome.set_exception(ShuttingDownError())

    def _note_broken(self, reason: str) -> None:
        if not self.broken.done():
            self.broken.set_result(reason)

    # Everything below runs on the device thread.

    @torch.inference_mode()
    def _run(self) -> None:
        try:
            while self._take_jobs():
                self._turns.turn()
        except BaseException as error:
            log.exception("the device thread ended")
            reason = (isinstance(error, DeviceLostError) and str(error)) or "its device thread ended"
            self._tell(lambda: self._note_broken(reason))
        finally:
            self._closed = True
            self._abandon(self._turns.works)
            self._empty_inbox()

    def _take_jobs(self) -> bool:
        """Takes jobs from the inbox; waits if there is no work, or if more is expected soon. False when stopped.

        A failed job is logged.
        """
        while True:
            self.stop_flag.clear()  # first: a job that comes after this look at the inbox sets it again
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
            except DeviceLostError:
                raise
            except Exception as error:
                check_device(error)
                log.exception("a job of the device thread failed")

    def _empty_inbox(self) -> None:
        """Fails the works and calls still in the inbox, so that no caller waits for a thread that has ended."""
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._inbox.get(block=False)
                if isinstance(job, list):
                    self._abandon(job)
        self._tell(self._refuse_calls)

    def _abandon(self, works: list[Work]) -> None:
        """Fails the works when the thread ends. The caches may be in any state: they are not used again."""
        for work in works:
            work.fail(ShuttingDownError())
        self._tell(lambda: settle_futures(works))

    def _tell(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller waits
            self._loop.call_soon_threadsafe(callback)

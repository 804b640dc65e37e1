"""The turns of the device thread: schedule works, run one forward pass, process its results. Without an event loop."""

import logging
import time
from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from specpair.caches.out_of_memory import is_out_of_memory
from specpair.engine.failures import check_device
from specpair.engine.gathering import SPARE, Gathering
from specpair.engine.going_on_plain import GoingOnPlain
from specpair.engine.holdings import Holdings
from specpair.engine.next_work import following_works
from specpair.engine.pacing import Pacing
from specpair.engine.pass_clock import pass_clock
from specpair.engine.passes import run_pass
from specpair.engine.scheduler import Chunk, schedule
from specpair.engine.statistics import EngineStatistics, PassSteps
from specpair.engine.work import BatchSize, Work, settle_futures
from specpair.errors import CapacityExhaustedError, ForwardFailedError
from specpair.models.runner import EncodingRunner, Runner
from specpair.models.stop_flag import StopFlag
from specpair.sequences.sequence import Sequence

log = logging.getLogger(__name__)

Advance: TypeAlias = Callable[[list[Work], Tensor], None]
"""Processes the logits `[sum of row_count, vocabulary]` of works whose tokens are all fed. For each work it sets
`done`, or `error` and `done`, or appends tokens to the sequence and sets `row_count` for the next pass."""

Ready: TypeAlias = Callable[[list[Work]], None]
"""Is told all works before each turn, and may append tokens to their sequences and set `row_count` for their next
pass."""

FORK_SECONDS = 0.001
"""Time of a turn after which no further cache is forked in it, or a tenth of a pass, if that is longer. Where somebody
waits it is a tenth of all passes of that work, if that is shorter: what is not forked now may have to wait for them."""

Tell: TypeAlias = Callable[[Callable[[], object]], None]
"""Calls a function on the event loop."""


class Turns:
    """All works under way. Device thread only."""

    def __init__(
        self,
        runner: Runner,
        advance: Advance,
        statistics: EngineStatistics,
        tell: Tell,
        *,
        token_budget: int,
        short: int,
        pacing: Pacing | None = None,
        ready: Ready | None = None,
        stop: StopFlag | None = None,
    ):
        """`stop` ends a pass of several steps after the next of them."""
        self.runner = runner
        self.advance = advance
        self._ready = ready
        self.works: list[Work] = []
        """Oldest first."""
        self._statistics = statistics
        self._tell = tell
        self._token_budget = token_budget
        self._short = short
        self._pacing = pacing
        self._stop = StopFlag() if stop is None else stop
        self._clock = pass_clock(runner.device)
        self._gathering = Gathering()
        self._going_on_plain = GoingOnPlain()
        self._holdings = Holdings(runner.cache, statistics)
        self._ran_suspect = False
        """Whether the last turn ran a suspect."""

    def add(self, works: list[Work]) -> None:
        self.works += works
        self._gathering.arrive(works)

    def patience(self) -> float | None:
        """Seconds to wait for more works before the next turn; None, without limit, if there is no work."""
        return self._gathering.patience(self.works, time.perf_counter()) if self.works else None

    def fork(self, source: Sequence, forked: Sequence) -> None:
        self._holdings.fork(source, forked)

    @staticmethod
    def bring_forward(work: Work) -> None:
        """From now on somebody waits for the work, and its sequence is an open one."""
        work.is_background = work.sequence.is_branch = False

    def expect_nothing(self, sequence: Sequence) -> None:
        """No pass waits for the next call of the sequence."""
        self._gathering.forget(sequence)

    def release(self, sequence: Sequence) -> None:
        """Frees the blocks of a closed sequence. What this thread went on to by itself ends with it."""
        self._gathering.forget(sequence)
        self.works = [work for work in self.works if work.sequence is not sequence]
        self._holdings.release(sequence)

    def discard(self, sequences: list[Sequence]) -> None:
        """Frees the blocks of sequences, without keeping their content."""
        for sequence in sequences:
            self._gathering.forget(sequence)
            self._holdings.discard(sequence)

    def turn(self) -> None:
        """Runs one turn: a forward pass, if any work can be fed."""
        self.drop_cancelled()
        if self._ready is not None:
            self._ready(self.works)
        works = self._encoded(self._prepared(self._with_spare(self._company())))
        wanted = schedule(works, self._token_budget, self._short)
        chunks = self._holdings.reserve(wanted, self.works)
        if roomless := [work for work in self.works if work.done]:
            self._finish(roomless)
        if chunks:
            note_start(chunks)
            self._pass(chunks)
        elif waiting := [chunk.work for chunk in wanted if not chunk.work.done]:
            self._refuse(min(waiting, key=self.works.index))

    def drop_cancelled(self) -> None:
        """Drops works whose caller is gone; others may take their cache even before it is released."""
        for work in self.works:
            if work.future.done():
                self._holdings.rest(work.sequence)
        self.works = [work for work in self.works if not work.future.done()]

    def _company(self) -> list[Work]:
        """The works of this turn. A suspect runs alone, alternating with all works that are not suspect."""
        suspects = [work for work in self.works if work.sequence.is_suspect]
        if not suspects:
            return self.works
        others = [work for work in self.works if not work.sequence.is_suspect]
        self._ran_suspect = not (self._ran_suspect and others)
        return suspects[:1] if self._ran_suspect else others

    def _with_spare(self, works: list[Work]) -> list[Work]:
        """The works for which somebody waits, with as many others as hardly lengthen the pass; else as many others as
        are quick together. Of the others the likeliest to be of use go first."""
        background = sorted((work for work in works if work.is_background), key=lambda work: -work.chance)
        if not background:
            return works
        waited_for = [work for work in works if not work.is_background]
        if not waited_for:
            wanted = background[: self._gathering.quick_rows()]
            quick = self._with_cache(wanted, max(FORK_SECONDS, SPARE * self._gathering.fixed_cost))
            if len(quick) < len(wanted):
                self._stop.set()  # the others have their cache, and join, after a step
            return quick
        token_count = min(sum(work.pending for work in waited_for), self._token_budget)
        spare = self._gathering.spare_rows(token_count)
        steps = max(work.steps_left for work in waited_for)
        seconds = min(SPARE * steps * self._gathering.times.seconds(token_count), FORK_SECONDS)
        begun = [work for work in background if work.parent is None][:spare]
        others = [work for work in background if work.parent is not None][: spare - len(begun)]
        return waited_for + begun + self._with_cache(others, seconds)

    def _with_cache(self, background: list[Work], seconds: float) -> list[Work]:
        """Those that have the cache of their parent, or get it now. That takes time in which somebody waits, or may
        begin to, so the others may have to wait for the next turn."""
        started = time.perf_counter()
        ready: list[Work] = []
        for work in background:
            if work.parent is not None and time.perf_counter() - started < seconds:
                self._take_over(work, work.parent)
            if work.parent is None and not work.done:
                ready.append(work)
        return ready

    def _take_over(self, work: Work, parent: Sequence) -> None:
        """Gives a work what its parent has in the cache."""
        try:
            self._holdings.fork(parent, work.sequence, work.room)
            work.parent = None  # only now: who sees it may drop the parent
        except Exception as error:
            check_device(error)
            log.exception("a cache could not be forked")
            self._fail(work, error)

    def _pass(self, chunks: list[Chunk]) -> None:
        """Runs one forward pass and has the service process the logits."""
        token_count = sum(chunk.token_count for chunk in chunks)
        self._clock.begin()
        if self._pacing is not None:
            self._pacing.begin(token_count)
        try:
            output = run_pass(self.runner, chunks)
        except Exception as error:
            self._undo(chunks, error)
            return
        row_count = len(output.logits)
        complete = [chunk.work for chunk in chunks if chunk.completes]
        self._hurry_for_others(complete)
        self._advance_or_fail(complete, output.logits)
        if self._pacing is not None:
            self._pacing.end()
        steps = self._statistics.take_steps()
        self._clock.end(lambda seconds: self._note_pass(len(chunks), token_count, row_count, steps, seconds))
        self._finish([work for work in complete if work.done])
        self._clock.settle()

    def _hurry_for_others(self, complete: list[Work]) -> None:
        """Has the pass end after its next step if somebody waits for a work that cannot go on in it."""
        going = set(complete)
        if any(not work.is_background and work not in going for work in self.works):
            self._stop.set()

    def _note_pass(
        self, sequence_count: int, token_count: int, row_count: int, steps: PassSteps, seconds: float
    ) -> None:
        """Records a finished pass for the metrics and for `Gathering`. Where others could join after any of its steps,
        a step is what they have to wait for."""
        self._statistics.add_pass(sequence_count, token_count, row_count, seconds)
        if row_count == token_count:
            self._gathering.add_pass(sequence_count, token_count, seconds / steps.joinable, seconds / steps.all)

    def _advance_or_fail(self, complete: list[Work], logits: Tensor) -> None:
        """Has the service process the logits of fed works. If that fails, it is unknown how far it came, so all of the
        works fail. Their retries first run alone."""
        for work in complete:
            work.done = work.row_count == 0
        wanting = [work for work in complete if not work.done]
        try:
            if wanting:
                self.advance(wanting, logits)
            for work in wanting:
                if work.done and work.error is None:
                    if work.parents:
                        self._holdings.keep_path(work)
                    work.resume()
        except Exception as error:
            check_device(error)
            log.exception("processing the logits of a forward pass failed")
            for work in wanting:
                work.sequence.is_suspect = True
                work.fail(ForwardFailedError(), spares_cache=is_out_of_memory(error))

    def _undo(self, chunks: list[Chunk], error: Exception) -> None:
        """Handles a failed pass. It wrote only at the positions of its own tokens, so the rest of the caches is valid.

        If it had several works, each is retried alone, so that one bad work does not fail the others. A work that ran
        alone fails, and so does one for which nobody waits.
        """
        check_device(error)
        log.error("a forward pass of %d sequences failed", len(chunks), exc_info=error)
        for work, token_count, _ in chunks:
            sequence = work.sequence
            sequence.is_suspect = True
            assert sequence.holding is not None
            sequence.valid_length = min(sequence.valid_length, sequence.holding.length - token_count)
        for work, *_ in chunks:
            if len(chunks) == 1 or work.is_background:
                self._fail(work, error)

    def _fail(self, work: Work, cause: Exception) -> None:
        work.fail(ForwardFailedError(), spares_cache=is_out_of_memory(cause))
        self._finish([work])

    def _prepared(self, works: list[Work]) -> list[Work]:
        """Prepares the caches of works. Returns the works that can be fed; the others fail, among them those in the
        background without the cache of their prompt."""
        prepared: list[Work] = []
        for work in works:
            try:
                self._holdings.prepare(work)
                if work.is_background and work.pending > self._short:
                    self._holdings.end(work)
                    self._finish([work])
                else:
                    prepared.append(work)
            except Exception as error:
                check_device(error)
                log.exception("a cache could not be prepared")
                self._fail(work, error)
        return prepared

    def _encoded(self, works: list[Work]) -> list[Work]:
        """The works for which the encoder has run, if the model has one. It runs here, in a pass of its own, and once
        in a turn, so that the others wait for no more than that."""
        waiting = [work for work in works if not is_encoded(work.sequence)]
        if waiting and isinstance(self.runner, EncodingRunner):
            self._encode(self.runner, waiting[0])
        return [work for work in works if is_encoded(work.sequence) and not work.done]

    def _encode(self, runner: EncodingRunner, work: Work) -> None:
        assert work.sequence.encoder_input is not None
        work.started_at = work.started_at or time.perf_counter()
        try:
            runner.encode(work.sequence.encoder_input)
            self._statistics.encoded_inputs += 1
        except Exception as error:
            check_device(error)
            log.exception("a pass of the encoder failed")
            self._fail(work, error)

    def _refuse(self, work: Work) -> None:
        """Fails the oldest work, which does not fit, if no other work holds cache: then waiting does not help."""
        if not any(self._holdings.has_blocks(other.sequence) for other in self.works if other is not work):
            work.fail(CapacityExhaustedError("the cache is too small for this sequence"), spares_cache=True)
            self._finish([work])

    def _finish(self, works: list[Work]) -> None:
        if not works:
            return
        now = time.perf_counter()
        for work in works:
            work.finished_at = now
            if work.started_at and not work.is_background:
                self._statistics.queue_time.add(work.queue_time)
            if work.error is None:
                work.sequence.is_suspect = False
            elif not work.spares_cache:
                work.sequence.valid_length = 0  # the cause may be in the cache
            self._holdings.rest(work.sequence)
        finished = set(works)
        self.works = [work for work in self.works if work not in finished]
        here = sum(not work.is_background for work in self.works)
        following = following_works(works, here, self._going_on_plain, self._gathering.fixed_cost)
        self._gathering.leave(works, now)
        self.works += following
        self._gathering.go_on(following)
        self._tell(lambda: settle_futures(works))


def is_encoded(sequence: Sequence) -> bool:
    """Whether the encoder has nothing to read for the sequence, or has read it."""
    return sequence.encoder_input is None or sequence.encoder_input.state is not None


def note_start(chunks: list[Chunk]) -> None:
    """Notes in the works when their first pass began, and the size of their largest pass."""
    now = time.perf_counter()
    size = BatchSize(sum(chunk.token_count for chunk in chunks), len(chunks))
    for work, *_ in chunks:
        work.started_at = work.started_at or now
        work.largest_batch = max(work.largest_batch or size, size)
        work.batch_count += 1
        work.batch_token_sum += size.token_count

"""Work ahead of all sequences of a draft model."""

import math
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from draft_service.ahead.branch import Branch
from draft_service.ahead.counts import AheadCounts, Result
from draft_service.ahead.generation import BranchEngine, Generation
from draft_service.ahead.odds import AllOdds
from draft_service.ahead.outcomes import Outcome
from draft_service.ahead.row_cost import RowCost
from draft_service.proposal import ANSWER_BYTES, DENSE_BYTES, AheadOrder, Deliver, Drafted, ProposeCall
from specpair.errors import ShuttingDownError
from specpair.options import Encoding, Rule
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.tracing import OpenSpan, open_span

DEFAULT_ROWS = 64
MOST_LEAST_CHANCE = 0.1
"""An outcome that is likelier is prepared for in any case."""
USUAL_PERIOD = 0.025
"""Seconds from one call of a sequence to the next, before any was seen."""
PERIOD_MEMORY = 64
LATELY_SECONDS = 2.0
"""A sequence that has not asked for so long has no share of the rows, and makes room for others."""
MAX_BYTES = 256 * 1024 * 1024
"""Most memory of prepared proposals of all sequences: dense ones have megabytes each."""
MAX_COPIED_TOKENS = 200_000
"""Most tokens that are copied for one step: each proposal is for a sequence of its own, and the event loop waits."""


class _Live(NamedTuple):
    """A generation under way, with the span of its work."""

    generation: Generation
    span: OpenSpan
    begun_at: float
    block_bytes: int
    """Memory of one of its proposals."""


class WorkAhead:
    """The generations of all sequences, one for each at most. Runs on the event loop."""

    def __init__(self, engine: BranchEngine):
        self.counts = AheadCounts()
        self.most_rows = DEFAULT_ROWS
        """Most outcomes of all sequences together that are prepared at a time; 0: nothing is prepared."""
        self._engine = engine
        self._odds = AllOdds()
        self._live: dict[Sequence, _Live] = {}
        """By the sequence that its call has."""
        self._asking: dict[Sequence, float] = {}
        """Sequences for which work ahead was asked lately, and when, in this order."""
        self._period = USUAL_PERIOD
        """Usual seconds from one call of a sequence to the next."""
        self._row_cost = RowCost()

    @property
    def branch_count(self) -> int:
        """Branches under way or ready."""
        return sum(len(live.generation.branches) for live in list(self._live.values()))

    @property
    def _row_count(self) -> int:
        """Rows that sequences have at present."""
        return sum(live.generation.row_count for live in self._live.values())

    def begin(
        self, held: HeldSequence[Drafted], call: ProposeCall, drafted: Drafted, order: AheadOrder, deliver: Deliver
    ) -> None:
        """Prepares the step after `call`, if that is still the last one of its sequence. A repeated call gets once more
        what is ready."""
        if not self.most_rows or not (drafted.tokens or call.is_plain) or not _is_after(held, call):
            return
        known = self._live.get(held.cached)
        if known is not None and known.generation.step == call.step + 1:
            known.generation.deliver_again(deliver)
            return
        self.drop(held.cached)
        odds = self._odds.of(held.options.rule, held.options.sampling)
        block_bytes = order.count * _row_bytes(held, drafted)
        wanted = min(order.max_outcomes, self._share(held.cached), max(1, MAX_COPIED_TOKENS // held.length))
        outcomes = self._room(wanted, block_bytes)
        if outcomes < 1:
            return
        order = replace(order, max_outcomes=outcomes)
        cost = self._row_cost.seconds(len(self._asking), order.count * _sent_bytes(drafted))
        least_chance = min(cost / self._period, MOST_LEAST_CHANCE)
        generation = Generation(self._engine, odds, held, call, drafted, order, deliver, least_chance)
        span = open_span("propose_ahead", sequence=call.sequence_id, step=call.step + 1)
        self._live[held.cached] = _Live(generation, span, time.monotonic(), block_bytes)
        try:
            generation.begin()
        except ShuttingDownError:
            self.drop(held.cached)

    def has_ready(self, held: HeldSequence[Drafted], call: ProposeCall) -> bool:
        """Whether the proposal of a call is whole."""
        live = self._live.get(held.cached)
        outcome = None if live is None else live.generation.outcome_of(call)
        branch = None if live is None or outcome is None else live.generation.match(outcome, call)
        return branch is not None and branch.is_ready

    def claim(self, held: HeldSequence[Drafted], call: ProposeCall) -> Branch | None:
        """The branch for a call, which becomes the sequence; all others are dropped."""
        live = self._live.get(held.cached)
        outcome = None if live is None else live.generation.outcome_of(call)
        if live is None or outcome is None:
            self.drop(held.cached)
            return None
        live.generation.learn(outcome)
        branch = live.generation.match(outcome, call)
        self._count(live.generation, outcome, branch)
        self.drop(held.cached, kept=branch)
        if branch is None:
            return None
        self._engine.bring_forward(branch.work)
        old, held.cached, held.length = held.cached, branch.sequence, call.base_length + len(call.appended)
        if old in self._asking:
            self._asking[held.cached] = self._asking.pop(old)
        self._engine.discard([old])
        return branch

    def pass_over(self, held: HeldSequence[Drafted], call: ProposeCall) -> None:
        """Learns what came, if the target goes on without a proposal; all that was prepared is dropped."""
        live = self._live.get(held.cached)
        outcome = None if live is None else live.generation.outcome_of(call)
        if live is not None and outcome is not None:
            live.generation.learn(outcome)
            self._count(live.generation, outcome, live.generation.branch_of(outcome))
        self.drop(held.cached)

    def forget(self, cached: Sequence) -> None:
        """Drops what was prepared for a sequence that ends or is rolled back, and its share."""
        self.drop(cached)
        self._asking.pop(cached, None)

    def drop(self, cached: Sequence, kept: Branch | None = None) -> None:
        """Drops what was prepared for a sequence, but the `kept` branch."""
        live = self._live.pop(cached, None)
        if live is None:
            return
        branches = live.generation.branches
        live.span.set(prepared=len(branches), ready=sum(branch.is_ready for branch in branches.values()))
        self._count_ends(branches.values(), kept)
        live.generation.end(kept)
        live.span.end()

    def _share(self, cached: Sequence) -> int:
        """The rows of one sequence: all that ask have as many, at least one."""
        now = time.monotonic()
        period = now - self._asking.pop(cached, -math.inf)
        if 0.0 < period < LATELY_SECONDS:
            self._period += (period - self._period) / PERIOD_MEMORY
        self._asking[cached] = now
        while (oldest := next(iter(self._asking))) is not cached and self._asking[oldest] < now - LATELY_SECONDS:
            del self._asking[oldest]
        return max(1, self.most_rows // len(self._asking))

    def _room(self, wanted: int, block_bytes: int) -> int:
        """As many of the wanted proposals as there are rows and memory for. What was prepared for sequences that have
        not asked lately is dropped for it."""
        lapsed = time.monotonic() - LATELY_SECONDS
        while (room := self._free(block_bytes)) < wanted and self._live:
            oldest = next(iter(self._live))
            if self._live[oldest].begun_at >= lapsed:
                break
            self.drop(oldest)
        return min(wanted, room)

    def _free(self, block_bytes: int) -> int:
        """How many proposals of this size may be added."""
        held = sum(live.generation.row_count * live.block_bytes for live in self._live.values())
        return min(self.most_rows - self._row_count, (MAX_BYTES - held) // block_bytes)

    def _count(self, generation: Generation, outcome: Outcome, branch: Branch | None) -> None:
        result = Result.MISS if branch is None else Result.HIT if branch.is_ready else Result.LATE
        self.counts.add_call(result, outcome.accepted_count)
        self.counts.ready.add(sum(branch.is_ready for branch in generation.branches.values()))

    def _count_ends(self, branches: Iterable[Branch], kept: Branch | None) -> None:
        for branch in branches:
            self.counts.tokens += len(branch.work.tokens)
            self.counts.blocks["used" if branch is kept else branch.end] += 1


def _row_bytes(held: HeldSequence[Drafted], drafted: Drafted) -> int:
    """Memory of a token of a proposal with what is sent of its row: as in the one before, if there was one."""
    if drafted.tokens:
        return drafted.byte_count // len(drafted.tokens)
    options = held.options
    is_dense = options.encoding is Encoding.DENSE and options.rule is not Rule.COUPLED
    return DENSE_BYTES * (options.vocab_size or 0) if is_dense else ANSWER_BYTES


def _sent_bytes(drafted: Drafted) -> int:
    """What is sent of a token's row: as in the proposal before; 0 if there was none."""
    return (drafted.byte_count - ANSWER_BYTES) // len(drafted.tokens) if drafted.tokens else 0


def _is_after(held: HeldSequence[Drafted], call: ProposeCall) -> bool:
    """Whether the sequence is where the answer to the call left it: no other call or rollback came since."""
    if held.last_step != call.step or held.answer is None or held.is_busy or not held.is_open:
        return False
    return held.length == call.base_length + len(call.appended)

"""Has the runner draw whole proposals, where it can; the others are drawn token by token."""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor

from draft_service.drafters.guessing import GuessingWork
from draft_service.drafters.model import ProposeWork
from specpair.caches.cache import KeyValueCache
from specpair.caches.out_of_memory import is_out_of_memory
from specpair.engine.failures import check_device
from specpair.engine.pacing import Pacing
from specpair.engine.statistics import EngineStatistics
from specpair.engine.work import Work
from specpair.errors import CapacityExhaustedError
from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import DrawnChain
from specpair.models.chains import Chains, Turn
from specpair.models.stop_flag import StopFlag
from specpair.whole_drafting import chain_of, holding_of, needs_steps, take_all

log = logging.getLogger(__name__)

LONG_STEP = 0.0005
"""Seconds of a step from which on a draw is stopped for works that come: about what it takes to begin again."""

CAPTURING = "captur"
"""In every message of CUDA and torch about work that cannot be captured in a graph."""


class ChainDrafter:
    """Draws the proposals of a draft model with a runner that draws chains. Device thread only."""

    def __init__(
        self,
        cache: KeyValueCache,
        chains: Chains,
        misses: Counter[ChainMiss],
        statistics: EngineStatistics,
        stop: StopFlag,
        pacing: Pacing | None = None,
    ):
        """`stop` is set when the engine has something else to do."""
        self._cache = cache
        self._chains = chains
        self._misses = misses
        self._statistics = statistics
        self._stop = stop
        self._pacing = pacing
        self._step_seconds = 0.0
        """Of the last draw, for each of its steps."""
        self._has_failed = False

    def advance(self, works: list[Work], logits: Tensor) -> tuple[list[Work], Tensor]:
        """Draws the proposals that begin or go on with these rows `[sum of row counts, vocabulary]`. Returns the works
        that are left to others, with their rows."""
        chains = [work for work in works if is_chain(work)]
        if not chains:
            return works, logits
        possible = [work for work in chains if self._can_draw(work)]
        if not self._has_all_awaited(possible, works):
            self._stop.set()
        drawn: set[Work] = set()
        for first in range(0, len(possible), self._chains.most_rows):
            group = possible[first : first + self._chains.most_rows]
            drawn.update(self._draw(group, rows_of(group, works, logits)))
        left = [work for work in works if work not in drawn]
        return left, rows_of(left, works, logits)

    @staticmethod
    def _has_all_awaited(possible: list[ProposeWork], works: list[Work]) -> bool:
        """Whether all works that somebody waits for are drawn whole: the others go on once this draw has ended."""
        whole = set[Work](possible)
        return all(work.is_background or work in whole for work in works)

    def _can_draw(self, work: ProposeWork) -> bool:
        """Whether the runner draws the proposal; counts why not."""
        is_ahead = work.is_background or work.looks
        reasons = {
            ChainMiss.FAILED: self._has_failed,
            ChainMiss.AHEAD: is_ahead and not self._chains.takes_turns,
            ChainMiss.LENGTH: work.count > self._chains.most_steps,
        }
        miss = next((reason for reason, applies in reasons.items() if applies), None) or needs_steps(work)
        return self._is_possible(work, miss or self._chains.refusal(work.options))

    def _is_possible(self, work: ProposeWork, miss: ChainMiss | None) -> bool:
        if miss is not None:
            self._leave([work], miss)
        return miss is None

    def _draw(self, works: list[ProposeWork], logits: Tensor) -> list[ProposeWork]:
        """Draws proposals from their first logits `[works, vocabulary]`, to their ends or until the draw is stopped.
        Returns those that were drawn; there was no room for the others."""
        kept = [place for place, work in enumerate(works) if self._is_possible(work, self._reserve(work))]
        works = [works[place] for place in kept]
        chains = [
            chain_of(
                *(work, holding_of(work.sequence), logits.size(1)),
                is_awaited=not work.is_background,
                looks_beyond=looks_beyond(work),
            )
            for work in works
        ]
        if not chains:
            return []
        if (miss := self._chains.miss(chains, logits.size(1))) is not None:
            return self._give_up(works, miss)
        turn = self._turn(works)
        began = time.perf_counter()
        try:
            drawn = self._chains.draw(logits[kept] if len(kept) < len(logits) else logits, chains, turn)
        except (RuntimeError, MemoryError) as error:
            if was_out_of_memory(error):
                log.warning("there is no memory to draw this proposal whole: it is drawn token by token")
                return self._give_up(works, ChainMiss.MEMORY)
            if CAPTURING not in str(error):  # such an error is CUDA's, too, but the device is not lost
                check_device(error)
            log.exception("the runner could not draw a proposal: from now on they are drawn token by token")
            self._has_failed = True
            return self._give_up(works, ChainMiss.FAILED)
        self._note(drawn, turn, time.perf_counter() - began)
        for work, chain in zip(works, drawn, strict=True):
            self._take(work, chain)
        return works

    def _take(self, work: ProposeWork, drawn: DrawnChain) -> None:
        """Gives a work what was drawn for it. Of the drawn tokens all but the last were fed."""
        fed, left = len(work.sequence.tokens), work.count - len(work.tokens)
        take_all(work, drawn)
        work.beyond = drawn.counts[left:]
        self._give_back(work, min(fed + max(len(drawn.tokens) - 1, 0), len(work.sequence.tokens)))

    def _turn(self, works: list[ProposeWork]) -> Turn:
        """How long a draw of these works may go on. What comes meanwhile waits for all of it only if nobody waits for
        less and its steps are so short that to begin again would cost more."""
        is_short = self._step_seconds < LONG_STEP and not any(work.is_background for work in works)
        stop = self._stop if self._chains.takes_turns and not is_short else None
        return Turn(stop) if self._pacing is None else Turn(stop, self._pacing.pace, self._pacing.due)

    def _note(self, drawn: list[DrawnChain], turn: Turn, seconds: float) -> None:
        """Counts what a draw fed."""
        lengths = [len(chain.tokens) for chain in drawn]
        self._step_seconds = seconds / max(*lengths, 1)
        self._statistics.drawn_tokens += sum(max(length - 1, 0) for length in lengths)
        steps = max(*lengths, 1) - 1
        self._statistics.drawn_steps += steps
        if turn.stop is not None:
            self._statistics.joinable_steps += steps

    def _leave(self, works: list[ProposeWork], miss: ChainMiss) -> None:
        """Leaves works to be drawn token by token to their ends."""
        for work in works:
            self._misses[miss] += 1
            work.takes_steps = True

    def _give_up(self, works: list[ProposeWork], miss: ChainMiss) -> list[ProposeWork]:
        """Leaves works that have room for all their tokens, as they were; so none was drawn."""
        self._leave(works, miss)
        for work in works:
            self._give_back(work, len(work.sequence.tokens))
        return []

    def _reserve(self, work: ProposeWork) -> ChainMiss | None:
        """Makes room for all tokens to draw but the last, which is not fed."""
        wanted = work.count + looks_beyond(work) - len(work.tokens) - 1
        try:
            self._cache.append(holding_of(work.sequence), wanted)
        except CapacityExhaustedError:
            return ChainMiss.CACHE
        return None

    def _give_back(self, work: ProposeWork, fed: int) -> None:
        """Drops the room for tokens that the proposal does not have. The first `fed` of the sequence are valid."""
        self._cache.truncate_to(holding_of(work.sequence), fed)
        work.sequence.valid_length = fed


def rows_of(some: Sequence[Work], works: list[Work], logits: Tensor) -> Tensor:
    """The logits of some of the works, in their order, of those of all `[sum of row counts, vocabulary]`."""
    if len(some) == len(works):
        return logits
    if not some:
        return logits[:0]
    rows = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
    return torch.cat([rows[work] for work in some])


def was_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory was short, perhaps in a capture, whose end may fail then in turn."""
    return isinstance(error, Exception) and (is_out_of_memory(error) or was_out_of_memory(error.__context__))


def is_chain(work: Work) -> TypeGuard[ProposeWork]:
    """Whether the work is a chain of the model alone that was not left to be drawn token by token."""
    return isinstance(work, ProposeWork) and not isinstance(work, GuessingWork) and not work.takes_steps


def looks_beyond(work: ProposeWork) -> bool:
    """Whether the row after its last token is looked at now. Who waits for a proposal does not wait for that."""
    return work.looks_beyond and work.is_background

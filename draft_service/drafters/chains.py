"""Has the runner draw whole proposals, where it can; the others are drawn token by token."""

import logging
from collections import Counter

import torch
from torch import Tensor

from draft_service.drafters.guessing import GuessingWork
from draft_service.drafters.model import ProposeWork
from specpair.caches.cache import KeyValueCache
from specpair.caches.out_of_memory import is_out_of_memory
from specpair.engine.failures import check_device
from specpair.engine.statistics import EngineStatistics
from specpair.engine.work import Work
from specpair.errors import CapacityExhaustedError
from specpair.models.chain_miss import ChainMiss
from specpair.models.chains import Chains
from specpair.whole_drafting import chain_of, holding_of, needs_steps, take_all

log = logging.getLogger(__name__)

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
    ):
        self._cache = cache
        self._chains = chains
        self._misses = misses
        self._statistics = statistics
        self._has_failed = False

    def advance(self, works: list[Work], logits: Tensor) -> tuple[list[Work], Tensor]:
        """Draws the proposals that begin with these rows `[sum of row counts, vocabulary]`. Returns the works that are
        left, with their rows."""
        begun = [work for work in works if is_begun(work)]
        if not begun:
            return works, logits
        rows = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
        possible = [work for work in begun if isinstance(work, ProposeWork) and self._can_draw(work)]
        for first in range(0, len(possible), self._chains.most_rows):
            group = possible[first : first + self._chains.most_rows]
            self._draw(group, torch.cat([rows[work] for work in group]))
        left = [work for work in works if not work.done]
        return left, torch.cat([rows[work] for work in left]) if left else logits[:0]

    def _can_draw(self, work: ProposeWork) -> bool:
        """Whether the runner draws the proposal; counts why not."""
        reasons = {
            ChainMiss.FAILED: self._has_failed,
            ChainMiss.AHEAD: work.is_background,
            ChainMiss.LENGTH: work.count > self._chains.most_steps,
        }
        miss = next((reason for reason, applies in reasons.items() if applies), None) or needs_steps(work)
        return self._is_possible(work, miss or self._chains.refusal(work.options))

    def _is_possible(self, work: ProposeWork, miss: ChainMiss | None) -> bool:
        if miss is not None:
            self._misses[miss] += 1
        return miss is None

    def _draw(self, works: list[ProposeWork], logits: Tensor) -> None:
        """Draws proposals from their first logits `[works, vocabulary]`; those for which there is no room stay."""
        kept = [place for place, work in enumerate(works) if self._is_possible(work, self._reserve(work))]
        works = [works[place] for place in kept]
        chains = [chain_of(work, holding_of(work.sequence), logits.size(1)) for work in works]
        if not chains:
            return
        if (miss := self._chains.miss(chains, logits.size(1))) is not None:
            self._leave(works, miss)
            return
        try:
            drawn = self._chains.draw(logits[kept] if len(kept) < len(logits) else logits, chains)
        except (RuntimeError, MemoryError) as error:
            if was_out_of_memory(error):
                log.warning("there is no memory to draw this proposal whole: it is drawn token by token")
                self._leave(works, ChainMiss.MEMORY)
                return
            if CAPTURING not in str(error):  # such an error is CUDA's, too, but the device is not lost
                check_device(error)
            log.exception("the runner could not draw a proposal: from now on they are drawn token by token")
            self._has_failed = True
            self._leave(works, ChainMiss.FAILED)
            return
        for work, chain in zip(works, drawn, strict=True):
            take_all(work, chain)
            self._give_back(work)
            self._statistics.drawn_tokens += max(len(work.tokens) - 1, 0)

    def _leave(self, works: list[ProposeWork], miss: ChainMiss) -> None:
        """Leaves works to be drawn token by token, as they were."""
        for work in works:
            self._misses[miss] += 1
            self._give_back(work)

    def _reserve(self, work: ProposeWork) -> ChainMiss | None:
        """Makes room for all tokens of the proposal but the last, which is not fed."""
        try:
            self._cache.append(holding_of(work.sequence), work.count - 1)
        except CapacityExhaustedError:
            return ChainMiss.CACHE
        return None

    def _give_back(self, work: ProposeWork) -> None:
        """Drops the room for tokens that the proposal does not have. What was fed is valid."""
        fed = len(work.sequence.tokens) - (1 if work.tokens else 0)
        self._cache.truncate_to(holding_of(work.sequence), fed)
        work.sequence.valid_length = fed


def was_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory was short, perhaps in a capture, whose end may fail then in turn."""
    return isinstance(error, Exception) and (is_out_of_memory(error) or was_out_of_memory(error.__context__))


def is_begun(work: Work) -> bool:
    """Whether the work is a chain of the model alone without a token yet. One that is drawn token by token has some."""
    return isinstance(work, ProposeWork) and not isinstance(work, GuessingWork) and not work.tokens

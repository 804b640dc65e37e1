"""Has the runner draw whole proposals, where it can; the others are drawn token by token."""

import logging
from collections import Counter

import numpy as np
import torch
from torch import Tensor

from draft_service.drafters.guessing import GuessingWork
from draft_service.drafters.model import ProposeWork
from specpair.caches.cache import KeyValueCache
from specpair.caches.out_of_memory import is_out_of_memory
from specpair.drafting import bits_of, end_early, sample_dense, take
from specpair.engine.failures import check_device
from specpair.engine.statistics import EngineStatistics
from specpair.engine.work import Work
from specpair.errors import CapacityExhaustedError
from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.models.chains import Chains
from specpair.options import Rule

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
        sampling = work.options.sampling
        reasons = {
            ChainMiss.FAILED: self._has_failed,
            ChainMiss.AHEAD: work.looks or work.is_background,
            ChainMiss.STRUCTURE: work.held.grammar is not None,
            ChainMiss.ADJUSTMENTS: sampling.adjusts_logits,
            ChainMiss.DENSE: work.sampler is sample_dense,
            ChainMiss.LENGTH: work.count > self._chains.most_steps,
        }
        miss = next((reason for reason, applies in reasons.items() if applies), None)
        return self._is_possible(work, miss or self._chains.refusal(work.options))

    def _is_possible(self, work: ProposeWork, miss: ChainMiss | None) -> bool:
        if miss is not None:
            self._misses[miss] += 1
        return miss is None

    def _draw(self, works: list[ProposeWork], logits: Tensor) -> None:
        """Draws proposals from their first logits `[works, vocabulary]`; those for which there is no room stay."""
        kept = [place for place, work in enumerate(works) if self._is_possible(work, self._reserve(work))]
        works = [works[place] for place in kept]
        chains = [chain_of(work, logits.size(1)) for work in works]
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
        assert work.sequence.holding is not None
        try:
            self._cache.append(work.sequence.holding, work.count - 1)
        except CapacityExhaustedError:
            return ChainMiss.CACHE
        return None

    def _give_back(self, work: ProposeWork) -> None:
        """Drops the room for tokens that the proposal does not have. What was fed is valid."""
        sequence = work.sequence
        assert sequence.holding is not None
        fed = len(sequence.tokens) - (1 if work.tokens else 0)
        self._cache.truncate_to(sequence.holding, fed)
        sequence.valid_length = fed


def was_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory was short, perhaps in a capture, whose end may fail then in turn."""
    return isinstance(error, Exception) and (is_out_of_memory(error) or was_out_of_memory(error.__context__))


def is_begun(work: Work) -> bool:
    """Whether the work is a chain of the model alone without a token yet. One that is drawn token by token has some."""
    return isinstance(work, ProposeWork) and not isinstance(work, GuessingWork) and not work.tokens


def chain_of(work: ProposeWork, vocab_size: int) -> ChainRow:
    """What the runner needs to draw the proposal."""
    holding, options = work.sequence.holding, work.options
    assert holding is not None
    is_coupled = options.rule is Rule.COUPLED
    needs_bits = not is_coupled and not options.sampling.is_greedy
    return ChainRow(
        holding=holding,
        position=len(work.sequence.tokens),
        count=work.count,
        sampling=options.sampling,
        is_coupled=is_coupled,
        min_confidence=work.min_confidence,
        confidence=work.confidence,
        vocab_size=min(options.vocab_size or vocab_size, vocab_size),
        bits=bits_of(work) if needs_bits else np.zeros(0, dtype=np.int64),
    )


def take_all(work: ProposeWork, drawn: DrawnChain) -> None:
    """Gives a work its tokens, up to the one after which the draft is unsure. What comes after that may have been
    drawn, but is dropped without being looked at: where the proposal ends depends on tokens alone that are kept
    (docs/exactness.md, rule 8)."""
    for token, share in zip(drawn.tokens, drawn.shares, strict=True):
        take(work, token)
        if work.min_confidence and not work.done:
            work.confidence *= share
            work.done = work.confidence < work.min_confidence
        if work.done:
            break
    else:
        end_early(work)
    work.counts = drawn.counts[: len(work.tokens)]

"""Whole proposals drawn in one compiled call: after each draw the pass that feeds it, without Python in between.

Tokens and counts are the bits of those that are drawn step by step from the same logits. A row that ends, or is not
finite, leaves the passes; what it fed is in the cache as before.
"""

import ctypes
from array import array
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.models.native_llama import NativeLlama
from specpair.models.native_structures import Chain, Draft
from specpair.options import Rule, SequenceOptions
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.draft_rows import TOTAL_LOG2
from specpair.speculation.randomness import BITS
from specpair.speculation.sparse_rows import MASS_CUT, MAX_SUPPORT


class NativeChains:
    """Draws chains with the compiled runner, greedy ones and those that are drawn from counts."""

    most_steps = 32
    most_rows = 32

    def __init__(self, native: NativeLlama):
        self._native = native
        self._ids = native.output_tokens

    def refusal(self, options: SequenceOptions) -> ChainMiss | None:
        sampling = options.sampling
        if sampling.is_greedy:
            return None
        if options.rule is Rule.COUPLED:
            return ChainMiss.RULE
        return ChainMiss.CUTS if sampling.top_k or sampling.top_p < 1.0 or sampling.min_p > 0.0 else None

    def miss(self, chains: Sequence[ChainRow], vocab_size: int) -> ChainMiss | None:
        """None: all are drawn together."""
        return None

    def draw(self, logits: Tensor, chains: Sequence[ChainRow]) -> list[DrawnChain]:
        """Raises MemoryError."""
        logits = logits.contiguous()
        results = [_Result(chain) for chain in chains]
        structures = (Chain * len(chains))()
        for structure, chain, result in zip(structures, chains, results, strict=True):
            self._fill(structure, chain, result)
        draft = Draft(
            chain_count=len(chains),
            width=self._native.output_count,
            token_ids=None if self._ids is None else self._ids.data_ptr(),
            first=logits.data_ptr(),
            first_stride=logits.size(1),
            mass=1.0 - MASS_CUT,
            most=MAX_SUPPORT,
            chains=ctypes.addressof(structures),
        )
        self._native.draw(draft, max(chain.position + chain.count for chain in chains))
        return [result.drawn(own.length) for result, own in zip(results, structures, strict=True)]

    def _fill(self, own: Chain, chain: ChainRow, result: "_Result") -> None:
        stack = chain.holding.storage.stacks[0]
        own.keys, own.values, own.capacity = stack.keys.data_ptr(), stack.values.data_ptr(), stack.keys.size(2)
        own.position, own.count, own.width = chain.position, chain.count, self._width(chain)
        own.temperature, own.min_confidence = chain.sampling.temperature, chain.min_confidence
        own.confidence = chain.confidence
        first = result.numbers.buffer_info()[0]
        own.sizes, own.tokens, own.chosen = (first + 8 * chain.count * part for part in range(3))
        own.shares = result.shares.buffer_info()[0]
        own.entries = None if result.entries is None else result.entries.ctypes.data

    def _width(self, chain: ChainRow) -> int:
        """How many of a row's logits are of ids that may be drawn."""
        if self._ids is None:
            return chain.vocab_size
        return int(np.searchsorted(self._ids.numpy(), chain.vocab_size))


class _Result:
    """Where the compiled call writes what it draws for a chain."""

    def __init__(self, chain: ChainRow):
        self._chain = chain
        chosen = (chain.bits >> (BITS - TOTAL_LOG2)).tolist() or [0] * chain.count
        self.numbers = array("q", [*[1] * chain.count, *[0] * chain.count, *chosen])
        """Sizes, tokens and numbers that draw them: int64 [3 count]."""
        self.shares = array("d", bytes(8 * chain.count))
        self.entries = None if chain.sampling.is_greedy else np.empty((chain.count, 2, MAX_SUPPORT), dtype=np.uint32)

    def drawn(self, length: int) -> DrawnChain:
        """Of `length` tokens that were drawn."""
        chain = self._chain
        sizes, tokens = self.numbers[:length], self.numbers[chain.count : chain.count + length].tolist()
        counts: list[CountRow] = []
        if self.entries is not None:  # copies: rows are kept for a while, and most are short
            counts = [CountRow(*own[:, :size].copy()) for own, size in zip(self.entries, sizes, strict=False)]
        elif not chain.is_coupled:
            counts = [CountRow((token,), (TOTAL,)) for token in tokens]
        return DrawnChain(tokens, counts, self.shares[:length].tolist())

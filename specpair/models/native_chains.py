"""Whole proposals drawn in one compiled call: after each draw the pass that feeds it, without Python in between.

A row that ends, or is not finite, leaves the passes; what it fed is in the cache as before.
"""

from collections.abc import Sequence

from torch import Tensor

from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.models.native_chain_rows import NativeChainRows, refusal_of
from specpair.models.native_llama import NativeLlama
from specpair.options import SequenceOptions


class NativeChains:
    """Draws chains with the compiled runner, greedy ones, and others without top-k, top-p and min-p."""

    most_steps = 32
    most_rows = 32

    def __init__(self, native: NativeLlama):
        self._native = native

    def refusal(self, options: SequenceOptions) -> ChainMiss | None:
        return refusal_of(options)

    def miss(self, chains: Sequence[ChainRow], vocab_size: int) -> ChainMiss | None:
        """None: all are drawn together."""
        return None

    def draw(self, logits: Tensor, chains: Sequence[ChainRow]) -> list[DrawnChain]:
        """Raises MemoryError."""
        logits = logits.contiguous()
        rows = NativeChainRows(chains, self._native.output_count, self._native.output_tokens)
        for own, chain in zip(rows.structures, chains, strict=True):
            stack = chain.holding.storage.stacks[0]
            own.keys, own.values, own.capacity = stack.keys.data_ptr(), stack.values.data_ptr(), stack.keys.size(2)
        rows.draft.first, rows.draft.first_stride = logits.data_ptr(), logits.size(1)
        self._native.draw(rows.draft, rows.longest)
        return rows.drawn()

"""Proposals as the compiled calls that draw them whole take and fill them, whichever model they are of.

Tokens and counts are the bits of those that are drawn step by step from the same logits.
"""

import ctypes
from array import array
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.models.native_structures import Chain, Draft
from specpair.options import SequenceOptions
from specpair.speculation.count_row import TOTAL, TOTAL_LOG2, CountRow
from specpair.speculation.outlook import WIDTH, Outlook
from specpair.speculation.randomness import BITS
from specpair.speculation.sparse_rows import MASS_CUT, MAX_SUPPORT


def refusal_of(options: SequenceOptions) -> ChainMiss | None:
    """Why proposals with these options are not drawn whole. Those that are, are greedy, drawn from counts, or
    chosen with shared noise."""
    sampling = options.sampling
    if sampling.is_greedy:
        return None
    return ChainMiss.CUTS if sampling.top_k or sampling.top_p < 1.0 or sampling.min_p > 0.0 else None


class NativeChainRows:
    """The memory of chains for one call."""

    def __init__(self, chains: Sequence[ChainRow], output_count: int, ids: Tensor | None):
        """`ids` `[outputs]`, ascending: the tokens that rows of logits have; None if those are all, `output_count`."""
        self._results = [_Result(chain) for chain in chains]
        self.structures = (Chain * len(chains))()
        for structure, chain, result in zip(self.structures, chains, self._results, strict=True):
            fill(structure, chain, result)
            structure.width = min(chain.vocab_size, output_count) if ids is None else count_below(ids, chain.vocab_size)
        self.draft = Draft(
            chain_count=len(chains),
            width=output_count,
            token_ids=None if ids is None else ids.data_ptr(),
            mass=1.0 - MASS_CUT,
            most=MAX_SUPPORT,
            chains=ctypes.addressof(self.structures),
        )
        self.longest = max(chain.position + chain.count for chain in chains)
        """Where the longest of them ends."""

    def drawn(self) -> list[DrawnChain]:
        """What the call has drawn."""
        results = zip(self._results, self.structures, strict=True)
        return [result.drawn(own.length, is_over=bool(own.is_over)) for result, own in results]


class _Result:
    """Where the compiled call writes what it draws for a chain."""

    def __init__(self, chain: ChainRow):
        self._chain = chain
        chosen = (chain.bits >> (BITS - TOTAL_LOG2)).tolist() or [0] * chain.count
        self.numbers = array("q", [*[1] * chain.count, *[0] * chain.count, *chosen])
        """Sizes, tokens and numbers that draw them: int64 [3 count]."""
        self.shares = array("d", bytes(8 * chain.count))
        draws = not chain.sampling.is_greedy and not chain.is_coupled
        self.entries = np.empty((chain.count, 2, MAX_SUPPORT), dtype=np.uint32) if draws else None
        self.look_most = WIDTH if chain.race_step is not None or (chain.looks and not draws) else 0
        self.look_numbers = array("q", bytes(8 * chain.count * (1 + self.look_most)))
        """Sizes of outlooks and their tokens: int64 [count (1 + look_most)]."""
        self.look_shares = array("d", bytes(8 * chain.count * self.look_most))

    def drawn(self, length: int, *, is_over: bool) -> DrawnChain:
        """Of `length` tokens that were drawn."""
        chain = self._chain
        sizes, tokens = self.numbers[:length], self.numbers[chain.count : chain.count + length].tolist()
        counts: list[CountRow] = []
        if self.entries is not None:  # copies: rows are kept for a while, and most are short
            counts = [CountRow(*own[:, :size].copy()) for own, size in zip(self.entries, sizes, strict=False)]
        elif not chain.is_coupled:
            counts = [CountRow((token,), (TOTAL,)) for token in tokens]
        looked_at = length if chain.race_step is None else min(length, 1)
        return DrawnChain(tokens, counts, self.shares[:length].tolist(), self._outlooks(looked_at), is_over)

    def _outlooks(self, length: int) -> list[Outlook]:
        if not self.look_most:
            return []
        found: list[Outlook] = []
        for first, size in zip(range(0, length * self.look_most, self.look_most), self.look_numbers, strict=False):
            tokens = self.look_numbers[self._chain.count + first : self._chain.count + first + size]
            found.append(Outlook(tokens.tolist(), self.look_shares[first : first + size].tolist()))
        return found


def fill(own: Chain, chain: ChainRow, result: _Result) -> None:
    own.position, own.count = chain.position, chain.count
    own.is_coupled, own.seed = chain.is_coupled, chain.sampling.seed
    own.temperature, own.min_confidence = chain.sampling.temperature, chain.min_confidence
    own.confidence = chain.confidence
    first = result.numbers.buffer_info()[0]
    own.sizes, own.tokens, own.chosen = (first + 8 * chain.count * part for part in range(3))
    own.shares = result.shares.buffer_info()[0]
    own.entries = None if result.entries is None else result.entries.ctypes.data
    own.is_awaited, own.look_most = chain.is_awaited, result.look_most
    own.look_sizes = result.look_numbers.buffer_info()[0]
    own.rank, own.race_step = chain.rank, -1 if chain.race_step is None else chain.race_step
    own.look_tokens, own.look_shares = own.look_sizes + 8 * chain.count, result.look_shares.buffer_info()[0]


def count_below(ids: Tensor, bound: int) -> int:
    """How many of ascending ids are below a bound."""
    return int(np.searchsorted(ids.numpy(), bound))

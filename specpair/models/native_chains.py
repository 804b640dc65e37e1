"""Whole proposals drawn in one compiled call: after each draw the pass that feeds it, without Python in between.

A row that ends, or is not finite, leaves the passes; what it fed is in the cache as before.
"""

from collections.abc import Sequence

from torch import Tensor

from specpair.caches.slab import Storage, Tail
from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.models.chains import WHOLE_TURN, Turn
from specpair.models.native_chain_rows import NativeChainRows, refusal_of
from specpair.models.native_llama import NativeLlama
from specpair.models.native_structures import Draft
from specpair.options import SequenceOptions


class NativeChains:
    """Draws chains with the compiled runner, greedy ones, and others without top-k, top-p and min-p."""

    most_steps = 33
    """Of a proposal of 32 tokens, with the one before it where work ahead draws that, too."""
    most_rows = 256
    takes_turns = True

    def __init__(self, native: NativeLlama):
        self._native = native

    def refusal(self, options: SequenceOptions) -> ChainMiss | None:
        return refusal_of(options)

    def miss(self, chains: Sequence[ChainRow], vocab_size: int) -> ChainMiss | None:
        """None: all are drawn together."""
        return None

    def draw(self, logits: Tensor, chains: Sequence[ChainRow], turn: Turn = WHOLE_TURN) -> list[DrawnChain]:
        """Raises MemoryError."""
        logits = logits.contiguous()
        rows = NativeChainRows(chains, self._native.output_count, self._native.output_tokens)
        for own, chain in zip(rows.structures, chains, strict=True):
            storage: Storage = chain.holding.storage
            stack = storage.stacks[0]
            own.keys, own.values, own.capacity = stack.keys.data_ptr(), stack.values.data_ptr(), stack.keys.size(2)
            if isinstance(storage, Tail):
                own.base, own.path = storage.base, storage.path_address
        rows.draft.first, rows.draft.first_stride = logits.data_ptr(), logits.size(1)
        limit(rows.draft, turn)
        self._native.draw(rows.draft, rows.longest)
        return rows.drawn()


def limit(draft: Draft, turn: Turn) -> None:
    """Notes in the structure how long the draw may go on."""
    draft.stop = None if turn.stop is None else turn.stop.address
    if turn.pace is not None:
        draft.due = nanoseconds(turn.due)
        draft.pass_time, draft.row_time = nanoseconds(turn.pace.seconds), nanoseconds(turn.pace.row_seconds)


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)

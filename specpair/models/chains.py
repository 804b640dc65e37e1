"""The interface of who draws whole proposals, without Python between their steps."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.options import SequenceOptions


class Chains(Protocol):
    """Draws chains with a runner. Device thread only."""

    most_steps: int
    """Tokens of the longest chain."""
    most_rows: int
    """Chains that are drawn together."""

    def refusal(self, options: SequenceOptions) -> ChainMiss | None:
        """Why chains with these options are not drawn."""
        ...

    def miss(self, chains: Sequence[ChainRow], vocab_size: int) -> ChainMiss | None:
        """Why these chains are not drawn together, at most `most_rows`."""
        ...

    def draw(self, logits: Tensor, chains: Sequence[ChainRow]) -> list[DrawnChain]:
        """Draws all tokens of chains for which there is no miss. `logits` `[chains, vocabulary]` are those after the
        last fed tokens."""
        ...


@runtime_checkable
class ChainRunner(Protocol):
    """A runner that can draw proposals."""

    chains: Chains | None
    chain_misses: Counter[ChainMiss]
    """Proposals that were drawn token by token all the same, by the reason."""

"""The interface of who draws whole proposals, without Python between their steps."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from specpair.engine_config import Pace
from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.models.stop_flag import StopFlag
from specpair.options import SequenceOptions


class Turn(NamedTuple):
    """How long a draw may go on, and how fast."""

    stop: StopFlag | None = None
    """Ends it after a step."""
    pace: Pace | None = None
    """The least time of its steps."""
    due: float = 0.0
    """When the first step may end, by time.perf_counter, if there is a pace."""


WHOLE_TURN = Turn()


class Chains(Protocol):
    """Draws chains with a runner. Device thread only."""

    most_steps: int
    """Tokens of the longest chain."""
    most_rows: int
    """Chains that are drawn together."""
    takes_turns: bool
    """Whether drawing can be stopped after any step, keeps a pace, and notes outlooks."""

    def refusal(self, options: SequenceOptions) -> ChainMiss | None:
        """Why chains with these options are not drawn."""
        ...

    def miss(self, chains: Sequence[ChainRow], vocab_size: int) -> ChainMiss | None:
        """Why these chains are not drawn together, at most `most_rows`."""
        ...

    def draw(self, logits: Tensor, chains: Sequence[ChainRow], turn: Turn = WHOLE_TURN) -> list[DrawnChain]:
        """Draws all tokens of chains for which there is no miss. `logits` `[chains, vocabulary]` are those after the
        last fed tokens. Those that take turns may end as `turn` says, once half of the chains are over if it has a
        flag, and once only chains are left for which nobody waits, if somebody waited for others."""
        ...


@runtime_checkable
class ChainRunner(Protocol):
    """A runner that can draw proposals."""

    chains: Chains | None
    chain_misses: Counter[ChainMiss]
    """Proposals that were drawn token by token all the same, by the reason."""

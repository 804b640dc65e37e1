"""Where the proposals of one output come from: one draft, or several at once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from coordinator.peers.ahead_blocks import AheadBlocks, Preparation
from coordinator.peers.answers import Proposed
from specpair.errors import SpecpairError


class ProposalSource(ABC):
    """Gets proposals, or None for a round without one. It may fail at any time without harm to the output."""

    blocks: AheadBlocks
    """What was prepared ahead."""
    opens: bool = True
    """Whether the sequence has to be opened somewhere before it proposes."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether a proposal need not wait for an opening."""

    @property
    @abstractmethod
    def is_known(self) -> bool:
        """Whether the limits are known."""

    @abstractmethod
    def start(self, history: Sequence[int], original: "ProposalSource | None" = None) -> bool:
        """Opens the sequence in the background. Returns whether that could be started."""

    @abstractmethod
    def room(self, length: int) -> int:
        """The largest number of tokens that can be proposed one after the other after `length` tokens."""

    @abstractmethod
    def has_prepared(self, step: int, history: Sequence[int]) -> bool:
        """Whether the proposal for this round is there already."""

    @abstractmethod
    async def propose(
        self,
        step: int,
        history: Sequence[int],
        count: int,
        min_confidence: float = 0.0,
        preparation: Preparation | None = None,
        tree_tokens: int = 0,
    ) -> Proposed | None:
        """Up to `count` proposed tokens after the history, or a tree of `tree_tokens` with paths of up to `count`; None
        if there can be none now."""

    def pass_over(self, step: int, history: Sequence[int], preparation: Preparation) -> bool:
        """Has the next step prepared; this one has no proposal. Returns whether somebody was told. Only a source that
        works ahead is asked."""
        return False

    def prepare(self, step: int, history: Sequence[int], preparation: Preparation) -> bool:
        """Has the first step with a proposal prepared while the target reads the prompt in this one. Returns whether
        somebody is being told; the sequence may still be opening. Only a source that works ahead is asked."""
        return False

    @abstractmethod
    def leave_alone(self, error: SpecpairError) -> None:
        """Stops asking after a failure of this sequence alone."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the sequence."""

"""The contract of a key-value cache: what the engine may ask of it, whatever the memory looks like."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from specpair.caches.holding import Holding, Segment


class LayerShape(NamedTuple):
    """What one attention layer caches per token."""

    heads: int
    key_size: int
    value_size: int

    @property
    def elements(self) -> int:
        return self.heads * (self.key_size + self.value_size)


class BlockCounts(NamedTuple):
    """Where the blocks of a cache are."""

    used: int
    """Held by sequences."""
    shared: int
    """Of those, held by several."""
    kept: int
    """Free, with content that a later sequence may find."""
    free: int
    """Free and empty."""
    evicted: int
    """Kept blocks that were given to others, since the start."""


class CachePlan(ABC):
    """One forward pass seen from the cache: made once, used by every layer."""

    @abstractmethod
    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Stores `[heads, tokens, size]` of all segments, one after the other."""

    @abstractmethod
    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values `[heads, segment.end, size]` of the segment at `index`; after `write`."""


class KeyValueCache(ABC):
    """Keys and values of many sequences. Used by the device thread alone."""

    block_size: int
    block_count: int

    @property
    @abstractmethod
    def free_block_count(self) -> int:
        """Blocks that can be had now, those of kept prefixes included."""

    @abstractmethod
    def block_counts(self) -> BlockCounts:
        """Where the blocks are. Any thread may ask; one that asks during a change may see half of it."""

    @abstractmethod
    def open(self, token_ids: list[int]) -> Holding:
        """A new holding; its length says how many of `token_ids` are there already, from a kept prefix."""

    @abstractmethod
    def append(self, holding: Holding, count: int) -> None:
        """Room for `count` more tokens, which the next plan writes. CapacityExhaustedError: no change."""

    @abstractmethod
    def truncate_to(self, holding: Holding, length: int) -> None:
        """Drops all tokens from position `length` on."""

    @abstractmethod
    def fork(self, holding: Holding, length: int) -> Holding:
        """A second holding of the first `length` tokens. CapacityExhaustedError: no change."""

    @abstractmethod
    def keep(self, holding: Holding, token_ids: list[int]) -> None:
        """Lets sequences with the same beginning find it; `token_ids` are those held, from the first."""

    @abstractmethod
    def free(self, holding: Holding) -> None:
        """Gives everything back. What was kept stays until its place is wanted."""

    @abstractmethod
    def plan(self, segments: Sequence[Segment]) -> CachePlan:
        """What the next forward pass needs."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Asserts that nothing is lost or held twice."""


def blocks_for(length: int, block_size: int) -> int:
    """Blocks that `length` tokens fill."""
    return -(-length // block_size)

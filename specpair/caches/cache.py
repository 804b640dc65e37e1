"""The interface of a KV cache, independent of its memory layout."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch

from specpair.caches.attention import Parents
from specpair.caches.holding import Holding, Segment
from specpair.caches.plan import CacheAccess, CachePlan, SegmentPlan


class LayerShape(NamedTuple):
    """Shape of what one attention layer caches per token."""

    heads: int
    key_size: int
    value_size: int

    @property
    def elements(self) -> int:
        return self.heads * (self.key_size + self.value_size)


class BlockCounts(NamedTuple):
    """Number of blocks by state."""

    used: int
    """Held by sequences."""
    shared: int
    """Used blocks that several sequences hold."""
    kept: int
    """Free, with content that a later sequence may find."""
    free: int
    """Free and empty."""
    evicted: int
    """Kept blocks evicted since the start."""


class KeyValueCache(ABC):
    """Keys and values of many sequences. Used by the device thread alone."""

    name: ClassVar[str]
    """What a model says of itself, and `--cache` is given."""
    block_size: int
    block_count: int
    device: torch.device

    @property
    @abstractmethod
    def free_block_count(self) -> int:
        """Blocks that can be allocated now, including those of kept prefixes."""

    @abstractmethod
    def block_counts(self) -> BlockCounts:
        """Number of blocks by state. Callable from any thread; a call during a change may see part of it."""

    @abstractmethod
    def open(self, token_ids: list[int]) -> Holding:
        """A new holding. Its length is the number of `token_ids` already cached, from a kept prefix."""

    @abstractmethod
    def append(self, holding: Holding, count: int) -> None:
        """Reserves room for `count` more tokens, written by the next plan. CapacityExhaustedError changes nothing."""

    @abstractmethod
    def truncate_to(self, holding: Holding, length: int) -> None:
        """Rolls back: drops all tokens from position `length` on."""

    @abstractmethod
    def has_blocks(self, holding: Holding) -> bool:
        """Whether the holding has blocks, alone or with others: freeing all that have them gives them to others. One
        without tokens may have some, too."""

    @abstractmethod
    def fork(self, holding: Holding, length: int, room: int = 0) -> Holding:
        """A second holding of the first `length` tokens. If it is short-lived, `room` says for how many more tokens to
        prepare. CapacityExhaustedError changes nothing."""

    @abstractmethod
    def keep(self, holding: Holding, token_ids: list[int]) -> None:
        """Makes the holding findable for sequences with the same prefix; `token_ids` are its tokens from the first."""

    @abstractmethod
    def free(self, holding: Holding) -> None:
        """Frees the holding. Kept content stays until its memory is needed."""

    @abstractmethod
    def keep_path(self, holding: Holding, start: int, path: list[int]) -> None:
        """For tokens stored as a tree from position `start` on: keeps those at the ascending indices `path`, moved
        together, and drops the others."""

    @abstractmethod
    def access(self, segments: Sequence[Segment]) -> CacheAccess:
        """Where the next forward pass writes and reads keys and values."""

    def plan(self, segments: Sequence[Segment], parents: Parents | None = None) -> CachePlan:
        """How the next forward pass attends; `parents` are those of all its tokens if there are trees."""
        return SegmentPlan(self.access(segments), segments, parents, self.device)

    @abstractmethod
    def check_integrity(self) -> None:
        """Asserts that no block is lost or held twice."""


def blocks_for(length: int, block_size: int) -> int:
    """Number of blocks for `length` tokens."""
    return -(-length // block_size)


def token_bytes(layers: dict[int, LayerShape], dtype: torch.dtype) -> int:
    """Bytes that one token takes in the cache."""
    return sum(shape.elements for shape in layers.values()) * dtype.itemsize

"""The contract of a key-value cache: what the engine may ask of it, whatever the memory looks like."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch

from specpair.caches.attention import Parents
from specpair.caches.holding import Holding, Segment
from specpair.caches.plan import CacheAccess, CachePlan, SegmentPlan


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
    def keep_path(self, holding: Holding, start: int, path: list[int]) -> None:
        """Of the tokens from position `start` on, which were stored as a tree, keeps those at the ascending indices
        `path`, moved together."""

    @abstractmethod
    def access(self, segments: Sequence[Segment]) -> CacheAccess:
        """Where the next forward pass stores and reads."""

    def plan(self, segments: Sequence[Segment], parents: Parents | None = None) -> CachePlan:
        """How the next forward pass attends; `parents` of all its tokens if there are trees."""
        return SegmentPlan(self.access(segments), segments, parents, self.device)

    @abstractmethod
    def check_integrity(self) -> None:
        """Asserts that nothing is lost or held twice."""


def blocks_for(length: int, block_size: int) -> int:
    """Blocks that `length` tokens fill."""
    return -(-length // block_size)


def token_bytes(layers: dict[int, LayerShape], dtype: torch.dtype) -> int:
    """Bytes that one token takes in the cache."""
    return sum(shape.elements for shape in layers.values()) * dtype.itemsize

"""Plans: how the tokens of one forward pass attend to the cache."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from specpair.caches.attention import Masks, Parents, Variant, attend
from specpair.caches.holding import Segment


class CachePlan(ABC):
    """The attention of one forward pass: created once, used by every layer."""

    @abstractmethod
    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        """Stores keys and values of all tokens, then computes the attention of each token.

        query `[heads, tokens, size]`, keys and values `[key heads, tokens, size]` of all segments, one after the other;
        returns `[heads, tokens, value size]`.
        """


class CacheAccess(ABC):
    """The part of a cache that one forward pass writes and reads: created once, used by every layer."""

    @abstractmethod
    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Stores `[heads, tokens, size]` of all segments, one after the other."""

    @abstractmethod
    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values `[heads, segment.end, size]` of the segment at `index`. Call it after `write`."""


class SegmentPlan(CachePlan):
    """One product for each segment, over its keys in place (contiguous) or gathered (paged)."""

    def __init__(self, access: CacheAccess, segments: Sequence[Segment], parents: Parents | None, device: torch.device):
        """`parents`, if there are trees, are indices among the tokens of all segments."""
        self._access = access
        self._counts = [segment.token_count for segment in segments]
        self._masks = Masks(segments, parents, device)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        access, masks = self._access, self._masks
        access.write(layer, keys, values)
        groups, window = query.size(0) // keys.size(0), variant.sliding_window
        if len(self._counts) == 1:
            return attend(query, *access.read(layer, 0), masks.of(0, window, groups), variant)
        outputs = [
            attend(part, *access.read(layer, index), masks.of(index, window, groups), variant)
            for index, part in enumerate(query.split(self._counts, 1))
        ]
        return torch.cat(outputs, dim=1)


class AlignedPlan(CachePlan):
    """Computes all rows of a chunk in one fixed shape, but stores only those of `part`."""

    def __init__(self, access: CacheAccess, part: Segment, chunk: Segment, device: torch.device):
        """`access` covers the segments `[part]`; `part` lies within `chunk`."""
        self._access = access
        self._fed = slice(part.start - chunk.start, part.end - chunk.start)
        self._end = chunk.end
        self._masks = Masks([chunk], None, device)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        self._access.write(layer, keys[:, self._fed], values[:, self._fed])
        held_keys, held_values = self._access.read(layer, 0)
        mask = self._masks.of(0, variant.sliding_window, query.size(0) // keys.size(0))
        return attend(query, padded(held_keys, self._end), padded(held_values, self._end), mask, variant)


def padded(held: Tensor, length: int) -> Tensor:
    """`[heads, length, size]`: `held`, then zeros, in new memory, so that all caches give the same layout."""
    copy = held.new_zeros(held.size(0), length, held.size(2))
    copy[:, : held.size(1)] = held
    return copy

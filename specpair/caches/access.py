"""How a forward pass stores and reads keys and values, wherever a cache has them."""

from abc import ABC, abstractmethod

from torch import Tensor


class CacheAccess(ABC):
    """The part of a cache that one forward pass writes and reads: made once, used by every layer."""

    @abstractmethod
    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Stores `[heads, tokens, size]` of all segments, one after the other."""

    @abstractmethod
    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values `[heads, segment.end, size]` of the segment at `index`; after `write`."""

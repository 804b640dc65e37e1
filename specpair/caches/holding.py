"""A sequence's holding in a cache, and the segment of it that a forward pass feeds. Plain data."""

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(eq=False)
class Holding:
    """What one sequence holds in a cache. Only the cache that made it reads `storage`."""

    length: int
    """Tokens whose keys and values are stored, or will be stored by the current forward pass."""
    storage: Any


class Segment(NamedTuple):
    """Tokens of one sequence in one forward pass."""

    holding: Holding
    start: int
    """Position of the first token; everything before it is in the cache."""
    token_count: int

    @property
    def end(self) -> int:
        return self.start + self.token_count

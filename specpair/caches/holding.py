"""What a sequence holds in a cache, and the part of it that a forward pass feeds; plain data."""

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(eq=False)
class Holding:
    """What one sequence holds in a cache. Only the cache that made it looks inside `storage`."""

    length: int
    """Tokens whose keys and values are stored, or are about to be stored by the forward pass under way."""
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

"""A sequence and what a cache holds of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specpair.caches.holding import Holding


@dataclass(eq=False)
class Sequence:
    """Tokens whose keys and values the cache holds or will hold.

    While work is under way the sequence belongs to the device thread, otherwise to the event loop. The
    loop never touches the cache: it lowers `valid_length`, and the device thread truncates before it feeds.
    """

    tokens: list[int]
    valid_length: int = 0
    """The cache agrees with `tokens` up to here at most. The loop lowers it; only a forward pass, or an opening for
    one, raises it."""
    answered_at: float = 0.0
    """When its last work ended, by time.perf_counter; 0 before. Device thread only, as `absence`."""
    absence: float | None = None
    """Usual time from there to the next work, in seconds."""
    is_suspect: bool = False
    """It was in a pass that failed, and has come to no answer since. Device thread only."""
    holding: "Holding | None" = None
    """Device thread only. None before the first work and after the cache was taken away for others."""

    def replace_from(self, start: int, token_ids: list[int]) -> None:
        """Makes the tokens `tokens[:start] + token_ids`, keeping what the cache already holds of them."""
        same = start
        for old, new in zip(self.tokens[start:], token_ids, strict=False):
            if old != new:
                break
            same += 1
        del self.tokens[start:]
        self.tokens.extend(token_ids)
        self.valid_length = min(self.valid_length, same)

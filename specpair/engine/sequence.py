"""A sequence as the engine knows it, and the work that is done on it."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from specpair.engine.cache import Holding


class BatchSize(NamedTuple):
    """What one forward pass held."""

    token_count: int
    sequence_count: int


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
    holding: Holding | None = None
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


@dataclass(eq=False)
class Work:
    """One call on one sequence: feed all its tokens, then look at the logits of the last `row_count`.

    A service subclasses it with what its `advance` needs. It is finished once `advance` sets `done`; until
    then the engine goes on feeding whatever tokens `advance` appended to the sequence.
    """

    sequence: Sequence
    row_count: int
    future: "asyncio.Future[None]" = field(init=False, repr=False)
    """Set by `Engine.run`."""
    error: Exception | None = None
    spares_cache: bool = False
    """The error, if there is one, says nothing against what the cache holds of the sequence."""
    done: bool = False
    submitted_at: float = field(default_factory=time.perf_counter)
    started_at: float = 0.0
    """When its first forward pass began."""
    finished_at: float = 0.0
    rollback_time: float = 0.0
    """Seconds that the cache took to drop what the tokens no longer agree with; before the pass that needs it."""
    largest_batch: "BatchSize | None" = None
    """The largest forward pass that it took part in; None before the first."""

    def fail(self, error: Exception, *, spares_cache: bool = False) -> None:
        """It is finished, without a result."""
        self.error, self.spares_cache, self.done = error, spares_cache, True

    @property
    def pending(self) -> int:
        """Tokens that are still to be fed."""
        return len(self.sequence.tokens) - (self.sequence.holding.length if self.sequence.holding else 0)

    @property
    def queue_time(self) -> float:
        """Seconds before the first forward pass."""
        return self.started_at - self.submitted_at

    @property
    def compute_time(self) -> float:
        """Seconds from the first forward pass to the answer."""
        return self.finished_at - self.started_at

"""The work that an engine does on a sequence."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from specpair.sequences.sequence import Sequence


class BatchSize(NamedTuple):
    """What one forward pass held."""

    token_count: int
    sequence_count: int


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
    feature_layers: tuple[int, ...] = ()
    """Layers whose hidden states are wanted with the logits."""
    features: Tensor | None = None
    """`[layers, row_count, hidden]` float32 of the last rows, if they are wanted; there before `advance`."""

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


def settle_futures(works: list[Work]) -> None:
    """On the event loop: wakes everybody who waits for these works."""
    for work in works:
        if work.future.done():
            continue
        if work.error is not None:
            work.future.set_exception(work.error)
        else:
            work.future.set_result(None)

"""The work that an engine does for one call on a sequence."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from specpair.sequences.sequence import Sequence


class BatchSize(NamedTuple):
    """Size of one forward pass."""

    token_count: int
    sequence_count: int


@dataclass(eq=False)
class Work:
    """One call on one sequence: feed all its tokens, then process the logits of the last `row_count`.

    A service subclasses it with the fields that its `advance` needs. The work is finished once `advance` sets `done`
    and `resume` leaves it so; until then the engine keeps feeding the tokens that these append to the sequence, and a
    tree whole each time.
    """

    sequence: Sequence
    row_count: int
    future: "asyncio.Future[None]" = field(init=False, repr=False)
    """Set by `Engine.submit`, or when the device thread goes on to the work by itself."""
    error: Exception | None = None
    spares_cache: bool = False
    """Whether the sequence's cache is valid in spite of the error."""
    done: bool = False
    submitted_at: float = field(default_factory=time.perf_counter)
    started_at: float = 0.0
    """When its first forward pass began."""
    finished_at: float = 0.0
    rollback_time: float = 0.0
    """Seconds that the cache took for the rollback to what agrees with the tokens, before the pass."""
    largest_batch: "BatchSize | None" = None
    """The largest forward pass that it took part in; None before the first."""
    batch_count: int = 0
    """The passes that it took part in, and their tokens together."""
    batch_token_sum: int = 0
    feature_layers: tuple[int, ...] = ()
    """Layers whose hidden states are requested with the logits."""
    features: Tensor | None = None
    """`[layers, row_count, hidden]` float32 of the last rows, if requested; set before `advance`."""
    parents: tuple[int, ...] | None = None
    """If its last tokens are a tree: for each of them the index of its parent among them, -1 for a child of the token
    before them. There are `row_count` - 1 of them, and they are fed in one pass. None if all tokens are a chain."""
    path: list[int] = field(default_factory=list)
    """The ascending indices of the tree's tokens that stay, set by `advance`: the sequence has them, and no others of
    the tree, then."""
    parent: Sequence | None = None
    """An idle sequence whose cached prefix the work's sequence takes over before its first pass."""
    room: int = 0
    """Tokens for which a sequence with a `parent` gets room in the cache at once."""
    is_background: bool = False
    """Whether nobody waits for it: it takes part in passes of others only where it hardly lengthens them, and ends
    when its cache is needed elsewhere. Once the engine has it, only `Engine.bring_forward` changes it."""
    went_on_plain: bool = False
    """Whether its sequence went on to it for want of a call, without a proposal: see `go_on_plain`."""
    chance: float = 1.0
    """In the background: how likely it is to be of use. The likeliest go first."""

    def resume(self) -> None:
        """Begins with another pass, if it needs one after all: it is not done then. Asked when it is done without an
        error, and of a tree only the path is left in the cache."""

    def fail(self, error: Exception, *, spares_cache: bool = False) -> None:
        """Finishes the work with an error."""
        self.error, self.spares_cache, self.done = error, spares_cache, True

    @property
    def is_followed(self) -> bool:
        """Whether the sequence's next call is here already and begins with this answer. Asked when the pass is over:
        such calls come while it runs."""
        return False

    @property
    def has_missed(self) -> bool:
        """Whether calls for other answers of it are here. Asked when the pass is over, where none is for this one."""
        return False

    def go_on(self) -> "Work | None":
        """The work of the call that waits for this work's answer, if the device thread can begin with it at once; else
        the event loop will submit it. Asked once, when this work is done without an error."""
        return None

    @property
    def may_go_on_plain(self) -> bool:
        """Whether its sequence may go on without a proposal if no call waits for its answer. Asked when it is done."""
        return False

    def go_on_plain(self) -> "Work | None":
        """The work with which the sequence then goes on at once, so that others do not leave it behind; None if it
        needs the event loop."""
        return None

    @property
    def is_midway(self) -> bool:
        """Whether passes that it needed are behind it, so that it does not wait for others before the next."""
        return self.started_at > 0.0

    @property
    def steps_left(self) -> int:
        """Passes until it is done, as far as is known before they are run."""
        return 1

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

    def wake(self) -> None:
        """Wakes the caller that waits for the work. Runs on the event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(None)


def settle_futures(works: list[Work]) -> None:
    """Wakes the callers that wait for these works. Runs on the event loop."""
    for work in works:
        work.wake()

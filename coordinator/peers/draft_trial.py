"""What a sequence makes of a draft's failures: whom it blames, how long it goes without, and how it tries again."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from coordinator.deadline import Deadline
from coordinator.peers.drafts import DraftLink
from specpair.errors import InvalidDistributionError, InvalidFieldError, PeerUnavailableError, SpecpairError
from specpair.rpc.retry import RetryPolicy

logger = logging.getLogger(__name__)


class DraftTrial:
    """A draft that did not answer in time is tried again on the side: no round waits for it a second time.

    What such a trial proposes is dropped, whatever it is. Times are in seconds.
    """

    def __init__(self, sequence_id: str, timeout: float, cooldown: float, deadline: Deadline):
        """A call may take `timeout`, unless the client's `deadline` is sooner; after a failure of its own the sequence
        goes without for `cooldown`."""
        self._sequence_id = sequence_id
        self._timeout = timeout
        self._cooldown = cooldown
        self._deadline = deadline
        self._excused = RetryPolicy(first=max(cooldown, timeout))
        """Pauses after an excused failure."""
        self._excuse_count = 0
        """Times that a draft was not blamed for an answer that did not come, since the last one that did."""
        self._quiet_until = 0.0
        self._task: asyncio.Task[Any] | None = None

    @property
    def within(self) -> float:
        """What a call may take."""
        return self._deadline.at_most(self._timeout)

    @property
    def is_quiet(self) -> bool:
        """Whether no draft is to be asked now."""
        return time.monotonic() < self._quiet_until

    @property
    def is_needed(self) -> bool:
        """Whether a round does not wait for the draft before one call on the side succeeded."""
        return self._excuse_count > 0

    @property
    def is_under_way(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, call: Coroutine[Any, Any, object]) -> None:
        """Makes one call on the side."""
        self._task = asyncio.create_task(call)

    def cancel(self) -> None:
        """No round waits for it, nor is another draft blamed for its time."""
        if self._task is not None:
            self._task.cancel()

    def succeed(self) -> None:
        """The draft answered."""
        self._excuse_count = 0

    def leave_alone(self, error: SpecpairError) -> None:
        """After a failure of this sequence alone: for the cool-down, or for good if its tokens are no good there."""
        logger.warning("the draft failed: %s", error.message, extra={"sequence_id": self._sequence_id})
        is_final = isinstance(error, InvalidFieldError) and not isinstance(error, InvalidDistributionError)
        self._quiet_until = float("inf") if is_final else time.monotonic() + self._cooldown

    def give_up(self, link: DraftLink, start: float, *, is_catching_up: bool) -> None:
        """No proposal in time since `start`.

        A draft that had a long text to read first is slow with this sequence alone, if it answers others meanwhile; if
        there are none, that is believed once. The next pause of the sequence is twice as long.
        """
        error = PeerUnavailableError(f"no proposal within {self._timeout:g} s")
        is_alive = link.answered_at > start or not self._excuse_count
        if is_catching_up and link.is_there and is_alive:
            self.leave_alone(error)
            self._quiet_until = time.monotonic() + self._excused.longest_pause(self._excuse_count)
            self._excuse_count += 1
        else:
            self.blame(link, error)

    def blame(self, link: DraftLink, error: SpecpairError) -> None:
        """The draft did not answer; that of a client who has no more time to wait proves nothing."""
        if not self._deadline.is_over:
            link.fail(error)

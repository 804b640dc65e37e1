"""How a sequence handles a draft's failures: whether they count against the draft, the cool-down, and the retry."""

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
    """A draft that did not answer in time is retried in the background: no round waits for it a second time.

    The proposal of such a trial is always dropped. Times are in seconds.
    """

    def __init__(self, sequence_id: str, timeout: float, cooldown: float, deadline: Deadline):
        """A call has the timeout `timeout`, less if the client's `deadline` is sooner. After a failure of its own the
        sequence has no proposals for `cooldown`."""
        self._sequence_id = sequence_id
        self._timeout = timeout
        self._cooldown = cooldown
        self._deadline = deadline
        self._excused = RetryPolicy(first=max(cooldown, timeout))
        """Pauses after an excused failure."""
        self._excuse_count = 0
        """Timeouts that did not count against the draft, since the last answer."""
        self._quiet_until = 0.0
        self._task: asyncio.Task[Any] | None = None

    @property
    def within(self) -> float:
        """The timeout of a call made now."""
        return self._deadline.at_most(self._timeout)

    @property
    def is_quiet(self) -> bool:
        """Whether the sequence is in its cool-down: no draft is to be asked."""
        return time.monotonic() < self._quiet_until

    @property
    def is_needed(self) -> bool:
        """Whether a background call has to succeed before a round waits for the draft again."""
        return self._excuse_count > 0

    @property
    def is_under_way(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, call: Coroutine[Any, Any, object]) -> None:
        """Makes one call in the background."""
        self._task = asyncio.create_task(call)

    def cancel(self) -> None:
        """Cancels the background call."""
        if self._task is not None:
            self._task.cancel()

    def succeed(self) -> None:
        """The draft answered."""
        self._excuse_count = 0

    def leave_alone(self, error: SpecpairError) -> None:
        """Stops asking after a failure of this sequence alone: for the cool-down, or for good if it is refused."""
        logger.warning("the draft failed: %s", error.message, extra={"sequence_id": self._sequence_id})
        is_final = isinstance(error, InvalidFieldError) and not isinstance(error, InvalidDistributionError)
        self._quiet_until = float("inf") if is_final else time.monotonic() + self._cooldown

    def give_up(self, link: DraftLink, start: float, *, is_catching_up: bool) -> None:
        """Handles a timeout of a call made at `start`.

        A draft that had a long text to read is slow with this sequence alone if it answered other calls meanwhile, or
        if this is the first such timeout. Then only the sequence pauses, twice as long each time.
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
        """Counts a failure against the draft, unless the client's deadline has passed: then it proves nothing."""
        if not self._deadline.is_over:
            link.fail(error)

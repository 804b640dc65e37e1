"""Back-off: waits between retries, up to a deadline."""

import logging

from coordinator.deadline import Deadline
from coordinator.peers.news import News
from specpair.errors import CapacityExhaustedError, PeerUnavailableError, SpecpairError
from specpair.rpc.retry import RetryPolicy

POLICY = RetryPolicy(most_doublings=4)
"""No pause of more than 0.8 s: nobody tells when a target that is full, or whose pass failed, can go on."""

logger = logging.getLogger(__name__)


class Backoff:
    """The retries of one call to one peer."""

    def __init__(self, name: str, deadline: Deadline, news: News | None = None):
        """`news` may end a pause early: something has changed, so the next try may succeed."""
        self._name = name
        self.deadline = deadline
        self._patience = deadline.remaining
        self._news = News() if news is None else news
        self._failure_count = 0

    async def pause(self, error: SpecpairError) -> None:
        """Waits before the next try after `error`.

        If no time is left, raises `error` itself if the peer answered that it is full, else PeerUnavailableError
        without details of the network.
        """
        self.check(error)
        await self._news.wait(min(POLICY.pause(self._failure_count), self.deadline.remaining))
        self.check(error)
        self._failure_count += 1

    def check(self, error: SpecpairError) -> None:
        """Raises as `pause` does if no time is left."""
        if self.deadline.is_over:
            if isinstance(error, CapacityExhaustedError):
                raise error
            logger.warning("gave up on the %s: %s", self._name, error.message)
            message = f"the {self._name} could not be reached within {round(self._patience, 3):g} s"
            raise PeerUnavailableError(message, peer=self._name) from error

"""Waiting between tries, up to a deadline."""

import logging
import random
import time

from coordinator.peers.news import News
from specpair.errors import CapacityExhaustedError, PeerUnavailableError, SpecpairError

FIRST_DELAY = 0.05
LONGEST_DELAY = 1.0
JITTER = 0.5

logger = logging.getLogger(__name__)


class Backoff:
    """One run of tries against one peer. Times are in seconds."""

    def __init__(self, name: str, timeout: float, news: News | None = None):
        """`news` may end a pause early: something is different, so the next try may succeed."""
        self._name = name
        self._timeout = timeout
        self._news = News() if news is None else news
        self._deadline = time.monotonic() + timeout
        self._delay = FIRST_DELAY

    @property
    def remaining(self) -> float:
        """Time until the deadline, never quite 0, so that it can serve as the timeout of a call."""
        return max(self._deadline - time.monotonic(), 0.001)

    async def pause(self, error: SpecpairError) -> None:
        """Waits before the next try after `error`.

        When no time is left for one, raises PeerUnavailableError, which tells nothing of the network, or `error` itself
        if the peer answered but is full.
        """
        self.check(error)
        pause = self._delay * random.uniform(1 - JITTER, 1.0)  # so that not all come back at once
        await self._news.wait(min(pause, self.remaining))
        self._delay = min(self._delay * 2, LONGEST_DELAY)

    def check(self, error: SpecpairError) -> None:
        """Raises as `pause` does if no time is left."""
        if time.monotonic() >= self._deadline:
            if isinstance(error, CapacityExhaustedError):
                raise error
            logger.warning("giving the %s up: %s", self._name, error.message)
            message = f"the {self._name} could not be reached within {max(self._timeout, 0.0):g} s"
            raise PeerUnavailableError(message, peer=self._name) from error

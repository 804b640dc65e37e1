"""Waiting between tries, up to a deadline."""

import logging
import random

from coordinator.deadline import Deadline
from coordinator.peers.news import News
from specpair.errors import CapacityExhaustedError, PeerUnavailableError, SpecpairError

FIRST_DELAY = 0.05
LONGEST_DELAY = 1.0
JITTER = 0.5

logger = logging.getLogger(__name__)


class Backoff:
    """One run of tries against one peer."""

    def __init__(self, name: str, deadline: Deadline, news: News | None = None):
        """`news` may end a pause early: something is different, so the next try may succeed."""
        self._name = name
        self.deadline = deadline
        self._patience = deadline.remaining
        self._news = News() if news is None else news
        self._delay = FIRST_DELAY

    async def pause(self, error: SpecpairError) -> None:
        """Waits before the next try after `error`.

        When no time is left for one, raises PeerUnavailableError, which tells nothing of the network, or `error` itself
        if the peer answered but is full.
        """
        self.check(error)
        pause = self._delay * random.uniform(1 - JITTER, 1.0)  # so that not all come back at once
        await self._news.wait(min(pause, self.deadline.remaining))
        self.check(error)
        self._delay = min(self._delay * 2, LONGEST_DELAY)

    def check(self, error: SpecpairError) -> None:
        """Raises as `pause` does if no time is left."""
        if self.deadline.is_over:
            if isinstance(error, CapacityExhaustedError):
                raise error
            logger.warning("giving the %s up: %s", self._name, error.message)
            message = f"the {self._name} could not be reached within {round(self._patience, 3):g} s"
            raise PeerUnavailableError(message, peer=self._name) from error

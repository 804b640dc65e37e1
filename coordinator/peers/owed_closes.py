"""Closes sequences later that could not be closed at once."""

import asyncio
import logging
import time

from coordinator.peers.model_peer import ModelPeer
from coordinator.peers.news import News
from specpair.errors import SpecpairError
from specpair.rpc.retry import RetryPolicy

TIMEOUT = 5.0
PATIENCE = 60.0
"""Seconds for which closing is retried; the lease ends sequences that stay open."""
POLICY = RetryPolicy(first=1.0, most_doublings=0)

logger = logging.getLogger(__name__)


class OwedCloses:
    """Closes sequences at one peer, in the background where that does not succeed at once."""

    def __init__(self, peer: ModelPeer, news: News):
        """`news` may end a pause early."""
        self._peer = peer
        self._news = news
        self._latest: dict[str, float] = {}
        """The sequences to close, and until when that is retried (time.monotonic)."""
        self._is_owing = asyncio.Event()

    async def close(self, sequence_id: str, *, is_serving: bool) -> None:
        """Closes it now if the peer serves and answers, otherwise later."""
        if not (is_serving and await self._succeeds(sequence_id)):
            self.owe(sequence_id)

    def owe(self, sequence_id: str) -> None:
        """Closes it later."""
        self._latest[sequence_id] = time.monotonic() + PATIENCE
        self._is_owing.set()

    async def run(self) -> None:
        """Closes the owed sequences, until cancelled. One failed call shows that the peer is unavailable."""
        while True:
            await self._is_owing.wait()
            self._is_owing.clear()
            for sequence_id, latest in list(self._latest.items()):
                if time.monotonic() < latest and not await self._succeeds(sequence_id):
                    break
                del self._latest[sequence_id]
            if self._latest:
                self._is_owing.set()
                await self._news.wait(POLICY.pause())

    async def _succeeds(self, sequence_id: str) -> bool:
        try:
            await self._peer.close_sequence(sequence_id, TIMEOUT)
        except SpecpairError as error:
            logger.debug("closing at %s failed: %s", self._peer.address, error.message)
            return False
        return True

"""One target as the coordinator knows it."""

import asyncio

from coordinator.peers.breaker import Breaker
from coordinator.peers.link import CALL_TIMEOUT, Link
from coordinator.peers.news import News
from coordinator.peers.target_model import TargetModel
from coordinator.peers.target_peer import TargetPeer
from specpair.errors import PeerUnavailableError
from specpair.model_info import ModelInfo


class TargetLink(Link[TargetPeer]):
    """A target that may come and go."""

    name = "target"

    def __init__(self, peer: TargetPeer, breaker: Breaker, news: News, model: TargetModel):
        super().__init__(peer, breaker, news)
        self._model = model

    @property
    def is_usable(self) -> bool:
        """Whether it may be asked now: after a failure as well, for without a target nothing goes on."""
        return self.is_there

    async def confirm(self, instance_id: str, within: float) -> None:
        """Checks a process that answers in place of the one known.

        Raises VocabularyMismatchError if its tokens are others: running requests cannot go on there. Raises
        PeerUnavailableError if it is not known after `within` seconds; it is then checked all the same.
        """
        if self.info is not None and instance_id == self.info.instance_id:
            return
        self.want_check()
        try:
            async with asyncio.timeout(within):
                await self.check()
        except TimeoutError:
            raise PeerUnavailableError(f"not checked within {round(within, 3):g} s", timeout=within) from None

    async def _compare(self, info: ModelInfo) -> None:
        await self._model.compare(info, await self.peer.tokenizer_files(CALL_TIMEOUT))

"""The target as the coordinator knows it: who it is, and that it stays the same model."""

import asyncio
import logging

from coordinator.backoff import Backoff
from coordinator.peer import TargetPeer
from coordinator.tokenizer import Tokenizer
from specpair.errors import PeerUnavailableError, ShuttingDownError, VocabularyMismatchError
from specpair.model_info import ModelInfo, TokenizerFiles

CALL_TIMEOUT = 10.0

logger = logging.getLogger(__name__)


class TargetLink:
    """A target that was reached. Made by `connect_target`."""

    def __init__(self, peer: TargetPeer, info: ModelInfo, files: TokenizerFiles | None, tokenizer: Tokenizer | None):
        self.peer = peer
        self.info = info
        self.tokenizer = tokenizer
        self._files = files

    async def confirm(self, instance_id: str) -> None:
        """Checks a process that answers in place of the one known.

        Raises VocabularyMismatchError if its tokens are others: running requests cannot go on there.
        """
        if instance_id == self.info.instance_id:
            return
        info = await self.peer.info(CALL_TIMEOUT)
        files = await self.peer.tokenizer_files(CALL_TIMEOUT)
        if info.vocab_size != self.info.vocab_size or files != self._files:
            raise VocabularyMismatchError("the target came back with another vocabulary; restart the coordinator")
        logger.info("the target was restarted", extra={"instance_id": info.instance_id})
        self.info = info


async def connect_target(peer: TargetPeer, within: float) -> TargetLink:
    """Waits up to `within` seconds until the target answers. Raises PeerUnavailableError."""
    backoff = Backoff("target", within)
    while True:
        try:
            info = await peer.info(CALL_TIMEOUT)
            files = await peer.tokenizer_files(CALL_TIMEOUT)
            break
        except (PeerUnavailableError, ShuttingDownError) as error:
            await backoff.pause(error)
    tokenizer = None if files is None else await asyncio.to_thread(Tokenizer, files)
    return TargetLink(peer, info, files, tokenizer)

"""The link to one draft, and the pool of all drafts."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from coordinator.peers.ahead_blocks import BlockFate
from coordinator.peers.breaker import Breaker
from coordinator.peers.draft_peer import DraftPeer
from coordinator.peers.link import CALL_TIMEOUT, Link
from coordinator.peers.news import News
from coordinator.peers.pool import Pool
from coordinator.peers.target_model import TargetModel
from coordinator.peers.vocabulary import check_encoders, check_vocabularies, has_no_model
from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import NotSupportedError, PeerUnavailableError, VocabularyMismatchError
from specpair.model_info import ModelInfo
from specpair.options import Drafter

TRANSLATION_TIMEOUT = 60.0
"""Seconds for a draft to compare two large vocabularies."""

logger = logging.getLogger(__name__)


class DraftLink(Link[DraftPeer]):
    """The link to a draft, which may come and go. A process is used only once its vocabulary matches the target's."""

    name = "draft"

    def __init__(self, peer: DraftPeer, breaker: Breaker, news: News, target: TargetModel):
        super().__init__(peer, breaker, news)
        self._target = target

    async def confirm(self, instance_id: str, within: float) -> None:
        """Raises PeerUnavailableError at once if the process is not the checked one: no token waits for a check."""
        if self.info is None or instance_id != self.info.instance_id:
            self.want_check()
            raise PeerUnavailableError("the draft was restarted and is being checked")

    def room(self, length: int) -> int:
        """The largest number of tokens that the draft can propose after `length` tokens."""
        info = self.info
        return 0 if info is None else min(info.max_num_speculative_tokens, info.max_model_len - length - 1)

    async def _compare(self, info: ModelInfo) -> None:
        assert self._target.info is not None, "the target is checked first"
        check_encoders(info, self._target.info)
        try:
            await self._compare_vocabularies(info)
            self.peer.share_vocabulary()
        except VocabularyMismatchError as mismatch:
            await self._have_translated(mismatch)

    async def _have_translated(self, mismatch: VocabularyMismatchError) -> None:
        """Hands the draft the target's tokenizer. Raises the mismatch, with the reason, if it cannot translate."""
        files = self._target.files
        if files is None:
            raise mismatch
        try:
            facts = await self.peer.translate_for(files, TRANSLATION_TIMEOUT)
        except NotSupportedError:
            raise mismatch from None
        except VocabularyMismatchError as error:
            raise VocabularyMismatchError(f"{mismatch.message}; {error.message}", **mismatch.metadata) from None
        words = "the draft at %s translates for the target by %s, greedy outputs by %s: %.0f %% of a text is common"
        logger.info(words, self.peer.address, facts.method, facts.greedy_method, 100 * facts.overlap)

    async def _compare_vocabularies(self, info: ModelInfo) -> None:
        target = self._target
        assert target.info is not None, "the target is checked first"
        files = None if has_no_model(info) else await self.peer.tokenizer_files(CALL_TIMEOUT)
        tokenizer = None if files is None else await asyncio.to_thread(Tokenizer, files)
        await asyncio.to_thread(check_vocabularies, tokenizer, target.tokenizer, info, target.info)


class Drafts(Pool[DraftLink]):
    """All drafts. They may differ: each is compared with the target by itself."""

    def __init__(
        self,
        addresses: Sequence[str],
        make: Callable[[str, News], DraftLink],
        block_counts: Mapping[BlockFate, int] | None = None,
    ):
        """`block_counts` has what became of the proposals that were prepared ahead."""
        super().__init__(addresses, make)
        self.block_counts = dict.fromkeys(BlockFate, 0) if block_counts is None else block_counts

    @property
    def info(self) -> ModelInfo | None:
        """Of the first checked draft; None while there is none."""
        return next(iter(self._infos()), None)

    @property
    def own_drafter(self) -> Drafter | None:
        """The default drafter; None while unknown."""
        info = self.info
        return info.drafters[0] if info is not None and info.drafters else None

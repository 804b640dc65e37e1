"""The targets as the coordinator knows them: one, and all."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from coordinator.peers.breaker import Breaker
from coordinator.peers.link import CALL_TIMEOUT, Link
from coordinator.peers.news import News
from coordinator.peers.pool import Pool
from coordinator.peers.target_model import TargetModel
from coordinator.peers.target_peer import TargetPeer
from coordinator.requests.tokenizer import Tokenizer
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


class Targets(Pool[TargetLink]):
    """All targets: the same model, any number of times."""

    def __init__(self, addresses: Sequence[str], make: Callable[[str, News], TargetLink], model: TargetModel):
        super().__init__(addresses, make)
        self.model = model

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.model.tokenizer

    @property
    def info(self) -> ModelInfo:
        """The model with limits that every instance keeps; places are those of all together."""
        infos = self._infos()
        first = infos[0] if infos else self.model.info
        assert first is not None, "the pair begins with a target"
        if len(infos) < 2:
            return first
        return replace(
            first,
            max_model_len=min(info.max_model_len for info in infos),
            max_num_speculative_tokens=min(info.max_num_speculative_tokens for info in infos),
            max_num_seqs=sum(info.max_num_seqs for info in infos),
        )

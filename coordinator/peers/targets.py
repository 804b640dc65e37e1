"""The link to one target, and the pool of all targets."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from coordinator.peers.breaker import Breaker
from coordinator.peers.early_calls import EarlyResult
from coordinator.peers.link import CALL_TIMEOUT, Link
from coordinator.peers.news import News
from coordinator.peers.own_order import NO_ORDER, OwnOrder
from coordinator.peers.pool import Pool
from coordinator.peers.target_model import TargetModel
from coordinator.peers.target_peer import TargetPeer
from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import PeerUnavailableError
from specpair.model_info import NO_DEFAULTS, EncoderInfo, ModelInfo, SamplingDefaults


class TargetLink(Link[TargetPeer]):
    """The link to a target, which may come and go."""

    name = "target"

    def __init__(self, peer: TargetPeer, breaker: Breaker, news: News, model: TargetModel):
        super().__init__(peer, breaker, news)
        self._model = model

    @property
    def is_usable(self) -> bool:
        """Whether it may be called now. The breaker does not count: without a target nothing can go on."""
        return self.is_there

    def order_of(self, order: OwnOrder) -> OwnOrder:
        """What the target itself can do of an order: it proposes nothing without a head."""
        info = self.info
        if info is None:
            return NO_ORDER
        if not info.longest_run:
            order = order.alone
        if not order.count or not info.drafters:
            order = replace(order, count=0, min_confidence=0.0)
        count, length = min(order.count, info.max_num_speculative_tokens), min(order.run_length, info.longest_run or 1)
        return replace(order, count=count, run_length=length)

    @property
    def goes_on_plain(self) -> bool:
        """Whether it knows how to go on without a proposal."""
        return self.info is not None and self.info.goes_on_plain

    @property
    def takes_withheld_distributions(self) -> bool:
        """Whether it knows how to begin with a proposal whose distributions follow."""
        return self.info is not None and self.info.takes_withheld_distributions

    async def confirm(self, instance_id: str, within: float) -> None:
        """Checks a process that answers in place of the known one.

        Raises VocabularyMismatchError if its model differs: running requests cannot continue there. Raises
        PeerUnavailableError if the check takes longer than `within` seconds; another check is then still pending.
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
    """All targets, which all serve the same model."""

    def __init__(self, addresses: Sequence[str], make: Callable[[str, News], TargetLink], model: TargetModel):
        super().__init__(addresses, make)
        self.model = model
        self.early_counts = dict.fromkeys(EarlyResult, 0)
        """How the calls ended that were sent before the verdict of the step before."""
        self._combined: tuple[list[ModelInfo], ModelInfo] | None = None
        """The instances' information, and what `info` made of it."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.model.tokenizer

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """Of the first target that answered, as its tokenizer is: what a request means does not depend on which targets
        are there."""
        return NO_DEFAULTS if self.model.info is None else self.model.info.sampling_defaults

    @property
    def info(self) -> ModelInfo:
        """The model, with the lowest limits of all instances and the sum of their places."""
        infos = self._infos()
        first = infos[0] if infos else self.model.info
        assert first is not None, "the pair begins with a target"
        if len(infos) < 2:
            return first
        if self._combined is None or self._combined[0] is not infos:
            self._combined = infos, combined(infos)
        return self._combined[1]


def combined(infos: Sequence[ModelInfo]) -> ModelInfo:
    """The first of them, with the lowest limits of all and the sum of their places."""
    return replace(
        infos[0],
        max_model_len=min(info.max_model_len for info in infos),
        max_num_speculative_tokens=min(info.max_num_speculative_tokens for info in infos),
        max_num_seqs=sum(info.max_num_seqs for info in infos),
        runs_trees=all(info.runs_trees for info in infos),
        takes_withheld_distributions=all(info.takes_withheld_distributions for info in infos),
        encoder_decoder=min((info.encoder_decoder for info in infos), key=shortest),
    )


def shortest(encoder: EncoderInfo | None) -> int:
    """Most tokens that the encoder reads; 0 without one."""
    return 0 if encoder is None else encoder.max_encoder_len

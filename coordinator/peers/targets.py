"""All targets."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from coordinator.peers.news import News
from coordinator.peers.pool import Pool
from coordinator.peers.target_link import TargetLink
from coordinator.peers.target_model import TargetModel
from coordinator.requests.tokenizer import Tokenizer
from specpair.model_info import ModelInfo


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

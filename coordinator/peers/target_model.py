"""The model that all targets of a pair have."""

import asyncio

from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import VocabularyMismatchError
from specpair.model_info import ModelInfo, TokenizerFiles


class TargetModel:
    """What the first target that answered is; requests may move to another one only if it is the same."""

    def __init__(self) -> None:
        self.info: ModelInfo | None = None
        self.tokenizer: Tokenizer | None = None
        self._files: TokenizerFiles | None = None
        self._comparing = asyncio.Lock()

    async def compare(self, info: ModelInfo, files: TokenizerFiles | None) -> None:
        """Raises VocabularyMismatchError for another model than the first; that one is taken as it is."""
        async with self._comparing:  # of two that come together one is the first
            await self._compare(info, files)

    async def _compare(self, info: ModelInfo, files: TokenizerFiles | None) -> None:
        if self.info is None:
            self.tokenizer = None if files is None else await asyncio.to_thread(Tokenizer, files)
            self._files, self.info = files, info
        elif info.vocab_size != self.info.vocab_size or files != self._files:
            raise VocabularyMismatchError("the target has another vocabulary than before; restart the coordinator")
        elif (info.architecture, info.parameter_count) != (self.info.architecture, self.info.parameter_count):
            raise VocabularyMismatchError("the target is another model than before; restart the coordinator")

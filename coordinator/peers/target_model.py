"""The one model that all targets of a pair serve."""

import asyncio
import logging
from dataclasses import replace

from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import VocabularyMismatchError
from specpair.model_info import ModelInfo, TokenizerFiles

logger = logging.getLogger(__name__)


class TargetModel:
    """The model of the first target that answered. Requests may move only to targets with the same model."""

    def __init__(self, chat_template: str | None = None):
        """`chat_template` is Jinja source that replaces the model's; None keeps it."""
        self._chat_template = chat_template
        self.info: ModelInfo | None = None
        self.tokenizer: Tokenizer | None = None
        self.files: TokenizerFiles | None = None
        """Its tokenizer, to hand on."""
        self._comparing = asyncio.Lock()

    async def compare(self, info: ModelInfo, files: TokenizerFiles | None) -> None:
        """Raises VocabularyMismatchError if the model differs from the first one, which is accepted as it is."""
        async with self._comparing:  # only one of several can be the first
            await self._compare(info, files)

    async def _compare(self, info: ModelInfo, files: TokenizerFiles | None) -> None:
        if self.info is None:
            self.tokenizer = None if files is None else await asyncio.to_thread(Tokenizer, self._with_template(files))
            self.files, self.info = files, info
        elif info.vocab_size != self.info.vocab_size or files != self.files:
            raise VocabularyMismatchError("the target has a different vocabulary than before; restart the coordinator")
        elif (info.architecture, info.parameter_count) != (self.info.architecture, self.info.parameter_count):
            raise VocabularyMismatchError("the target has a different model than before; restart the coordinator")
        elif info.sampling_defaults != self.info.sampling_defaults:
            logger.warning(
                "a target has other sampling defaults than the first (%s): %s; those of the first are used until the "
                "coordinator is started again",
                str(self.info.sampling_defaults) or "none",
                str(info.sampling_defaults) or "none",
            )

    def _with_template(self, files: TokenizerFiles) -> TokenizerFiles:
        return files if self._chat_template is None else replace(files, chat_template=self._chat_template)

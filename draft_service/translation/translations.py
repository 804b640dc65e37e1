"""The targets' vocabularies that a draft was given."""

import asyncio
import logging
from collections.abc import Callable

from draft_service.translation.translation import Translation, make_translation, name_of
from draft_service.translation.vocabulary import Vocabulary
from specpair.errors import CapacityExhaustedError, InvalidFieldError, VocabularyMismatchError
from specpair.model_info import TokenizerFiles, VocabularyMethod, VocabularyTranslation

MOST = 4
"""Vocabularies that are kept: one has tens of megabytes."""

log = logging.getLogger(__name__)


class Translations:
    """Those that are held, the last used last. Runs on the event loop."""

    def __init__(
        self,
        files: TokenizerFiles | None,
        method: VocabularyMethod | None,
        in_use: Callable[[str], bool] = lambda name: False,
    ):
        """`files` are the draft's own; `method` is None if the overlap chooses; `in_use` says whether an open
        sequence has the vocabulary of this name."""
        self._files, self._method, self._in_use = files, method, in_use
        self._writer: Vocabulary | None = None
        self._held: dict[str, Translation] = {}
        self._making = asyncio.Lock()

    @property
    def facts(self) -> tuple[VocabularyTranslation, ...]:
        return tuple(translation.facts for translation in self._held.values())

    def get(self, name: str) -> Translation:
        """Raises InvalidFieldError for a vocabulary that is not held (any more)."""
        translation = self._held.pop(name, None)
        if translation is None:
            raise InvalidFieldError("target_vocabulary", "is not held here: hand it over by TakeTargetTokenizer")
        self._held[name] = translation
        return translation

    async def take(self, files: TokenizerFiles) -> Translation:
        """Takes a target's tokenizer; one that is held already costs nothing.

        Raises VocabularyMismatchError, with the reason, if it cannot be translated, and CapacityExhaustedError if
        sequences are open with as many others as are kept.
        """
        async with self._making:
            name = name_of(files)
            if name not in self._held:
                self._make_room()
                self._held[name] = await asyncio.to_thread(self._make, files)
                facts = self._held[name].facts
                words = "a target has another vocabulary: %s, greedy outputs %s; %.0f %% of a text is common, %d tokens"
                share, count = 100 * facts.overlap, facts.shared_token_count
                log.info(words, facts.method, facts.greedy_method, share, count)
            return self.get(name)

    def _make_room(self) -> None:
        if len(self._held) < MOST:
            return
        for name in list(self._held):
            if not self._in_use(name):
                del self._held[name]
                return
        raise CapacityExhaustedError(f"{MOST} vocabularies of targets are in use, the most that are held", limit=MOST)

    def _make(self, files: TokenizerFiles) -> Translation:
        from specpair.models.held_out_text import HELD_OUT_TEXT  # a draft without a model loads nothing of models

        if self._files is None:
            raise VocabularyMismatchError("the draft has no tokenizer: its vocabulary cannot be translated")
        if self._writer is None:
            self._writer = Vocabulary(self._files, writes=True)
        return make_translation(self._writer, files, self._method, HELD_OUT_TEXT)

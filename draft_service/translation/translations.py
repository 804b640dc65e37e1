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
        self._making: dict[str, asyncio.Task[Translation]] = {}
        """Those that are being read, or wait for it. A caller who leaves stops none: asking again finds it."""
        self._reading = asyncio.Lock()

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
        sequences are open with as many others as are kept, or as many are being read.
        """
        name = name_of(files)
        if name in self._held:
            return self.get(name)
        if name not in self._making:
            if len(self._making) >= MOST:
                raise CapacityExhaustedError(f"{MOST} vocabularies are being read, the most at once", limit=MOST)
            making = asyncio.create_task(self._keep(name, files))
            self._making[name] = making
            making.add_done_callback(lambda task: self._forget(name, task))
        return await asyncio.shield(self._making[name])

    def _forget(self, name: str, task: "asyncio.Task[Translation]") -> None:
        """Retrieves the exception, too, so that asyncio does not log it where the caller has left."""
        del self._making[name]
        if not task.cancelled():
            task.exception()

    async def _keep(self, name: str, files: TokenizerFiles) -> Translation:
        """Reads one, after those that came before. A refused one takes the place of none that is held."""
        async with self._reading:
            self._one_to_drop()
            made = await asyncio.to_thread(self._make, files)
            if (dropped := self._one_to_drop()) is not None:
                del self._held[dropped]
            self._held[name] = made
        facts = made.facts
        words = "a target has another vocabulary: %s, greedy outputs %s; %.0f %% of a text is common, %d tokens"
        share, count = 100 * facts.overlap, facts.shared_token_count
        log.info(words, facts.method, facts.greedy_method, share, count)
        return made

    def _one_to_drop(self) -> str | None:
        """The one that makes room for another; None if there is room. Raises CapacityExhaustedError if all are used."""
        if len(self._held) < MOST:
            return None
        for name in self._held:
            if not self._in_use(name):
                return name
        raise CapacityExhaustedError(f"{MOST} vocabularies of targets are in use, the most that are held", limit=MOST)

    def _make(self, files: TokenizerFiles) -> Translation:
        from specpair.models.held_out_text import HELD_OUT_TEXT  # a draft without a model loads nothing of models

        if self._files is None:
            raise VocabularyMismatchError("the draft has no tokenizer: its vocabulary cannot be translated")
        if self._writer is None:
            self._writer = Vocabulary(self._files, writes=True)
        return make_translation(self._writer, files, self._method, HELD_OUT_TEXT)

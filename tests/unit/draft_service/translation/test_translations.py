"""Which vocabularies of targets are held, and what is kept of one whose caller left."""

import asyncio
import threading

import pytest

from draft_service.translation.translations import MOST, Translations
from specpair.errors import CapacityExhaustedError, VocabularyMismatchError
from specpair.model_info import TokenizerFiles
from tests.tiny_tokenizers import byte_level, files, word_pieces


def numbered(number: int) -> TokenizerFiles:
    return files(byte_level(["a", "b", *map(str, range(number))], []))


class SlowTranslations(Translations):
    """Reads a vocabulary once it may."""

    def __init__(self) -> None:
        super().__init__(numbered(0), None)
        self.may_read = threading.Event()
        self.read_count = 0

    def _make(self, files: TokenizerFiles):  # type: ignore[no-untyped-def]
        assert self.may_read.wait(60.0)
        self.read_count += 1
        return super()._make(files)


async def test_a_caller_who_leaves_finds_it_read_later() -> None:
    """Opening a sequence has less time than reading a large vocabulary takes."""
    translations = SlowTranslations()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await translations.take(numbered(1))
    translations.may_read.set()
    async with asyncio.timeout(60):
        taken = await translations.take(numbered(1))
    assert translations.read_count == 1
    assert translations.get(taken.name) is taken


async def test_only_so_many_are_read_at_once() -> None:
    translations = SlowTranslations()
    waiting = [asyncio.create_task(translations.take(numbered(number))) for number in range(MOST)]
    await asyncio.sleep(0)
    with pytest.raises(CapacityExhaustedError, match="are being read"):
        await translations.take(numbered(MOST))
    translations.may_read.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
        await translations.take(numbered(MOST))
    assert len(translations.facts) == MOST


async def test_a_refused_one_takes_the_place_of_none() -> None:
    translations = Translations(numbered(0), None)
    for number in range(MOST):
        await translations.take(numbered(number))
    before = translations.facts
    with pytest.raises(VocabularyMismatchError):
        await translations.take(files(word_pieces()))
    assert translations.facts == before

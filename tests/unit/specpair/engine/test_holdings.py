"""What a sequence's cache begins with."""

import pytest

from specpair.engine.holdings import Holdings
from specpair.engine.scheduler import Chunk
from specpair.engine.statistics import EngineStatistics
from specpair.engine.work import Work
from specpair.sequences.encoder_input import EncoderInput
from specpair.sequences.sequence import Sequence
from tests.unit.specpair.engine.test_preemption import BLOCK_SIZE, CACHES, make_cache

TEXT = [1, 2, 3, 4, 5]


def read(holdings: Holdings, sequence: Sequence, row_count: int = 1) -> int | None:
    """Feeds all tokens, as a pass would; the tokens that a kept prefix had."""
    work = Work(sequence, row_count)
    holdings.prepare(work)
    assert sequence.holding is not None
    assert len(holdings.reserve([Chunk(work, work.pending, completes=True)], [work])) == 1
    sequence.valid_length = sequence.holding.length
    return sequence.kept_length


@pytest.mark.parametrize("kind", CACHES)
def test_it_is_noted_when_the_cache_is_first_opened(kind: str) -> None:
    holdings = Holdings(make_cache(kind, 16), EngineStatistics())
    first = Sequence(list(TEXT))
    assert read(holdings, first) == 0
    holdings.release(first)
    kept = 4 if kind == "paged" else 5
    second = Sequence([*TEXT, 6, 7])
    assert read(holdings, second) == kept, "a paged cache keeps whole blocks"
    second.tokens.append(8)
    assert read(holdings, second) == kept
    holdings.discard(second)
    assert read(holdings, second) == kept, "it is opened again, and the first time counts"


@pytest.mark.parametrize("kind", CACHES)
def test_rows_with_wanted_logits_are_fed(kind: str) -> None:
    holdings = Holdings(make_cache(kind, 16), EngineStatistics())
    text = list(range(2 * BLOCK_SIZE))
    for row_count, kept in ((1, 0), (1, len(text) - 1), (3, len(text) - 3)):
        sequence = Sequence(list(text))
        assert read(holdings, sequence, row_count) == kept
        holdings.release(sequence)


def test_texts_with_another_encoder_input_have_nothing_in_common() -> None:
    holdings = Holdings(make_cache("contiguous", 16), EngineStatistics())
    for encoder_input in (None, EncoderInput((1, 2))):
        sequence = Sequence(list(TEXT), encoder_input=encoder_input)
        assert read(holdings, sequence) == 0
        holdings.release(sequence)

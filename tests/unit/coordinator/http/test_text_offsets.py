"""Offsets of tokens are those of their text in the text of the output."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.http.text_offsets import TextOffsets
from coordinator.requests.tokenizer import Tokenizer
from tests.unit.coordinator.requests.tokenizers import byte_fallback, byte_level

UNUSUAL_TEXT = st.text(alphabet=st.sampled_from("ab é€😀\n"), min_size=1, max_size=30)


def offsets_of(tokenizer: Tokenizer, text: str) -> list[tuple[int, str]]:
    """The offset of each token with its text by itself."""
    offsets = TextOffsets(tokenizer)
    return [(offsets.of(token_id), tokenizer.token_text(token_id)) for token_id in tokenizer.encode(text)]


@given(UNUSUAL_TEXT)
def test_tokens_stand_where_their_offset_says(text: str) -> None:
    for offset, token in offsets_of(byte_level(), text):
        assert text.startswith(token, offset)


def test_what_follows_characters_of_several_tokens() -> None:
    found = offsets_of(byte_level(), "x😀😀y")
    assert len(found) > 4, "the character is one token: the test is worth nothing"
    assert found[0] == (0, "x") and found[-1] == (3, "y")
    assert {offset for offset, token in found if not token} == {1, 2}


def test_decoders_that_drop_a_first_space() -> None:
    tokenizer = byte_fallback()
    token_ids = [256, 257, 258]
    assert tokenizer.decode(token_ids) == "the cat sat"
    offsets = TextOffsets(tokenizer)
    assert [offsets.of(token_id) for token_id in token_ids] == [0, 3, 7]
    behind = TextOffsets(tokenizer, token_ids[:1], start=10)
    assert [behind.of(token_id) for token_id in token_ids[1:]] == [10, 14]


def test_without_a_tokenizer_there_is_no_text() -> None:
    offsets = TextOffsets(None, start=4)
    assert [offsets.of(token_id) for token_id in (5, 6)] == [4, 4]

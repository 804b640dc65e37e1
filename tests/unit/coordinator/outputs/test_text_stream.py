"""Text in pieces is the text of the whole, and no piece shows half a character."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.outputs.text_stream import TextStream
from coordinator.requests.tokenizer import Tokenizer
from tests.unit.coordinator.requests.tokenizers import byte_fallback, byte_level

BUNDLED_IDS = st.lists(st.integers(0, 4095), max_size=40)
# Ids of bytes above 127 alone make texts that are nothing but broken characters.
BROKEN_IDS = st.lists(st.sampled_from([i for i in range(1, 257) if "\ufffd" in byte_level().decode([i])]), max_size=40)
UNUSUAL_TEXT = st.text(alphabet=st.sampled_from("ab é€😀\u0301\ufffd\n"), max_size=30)


def pieces_of(tokenizer: Tokenizer, token_ids: Sequence[int], context: Sequence[int] = ()) -> list[str]:
    stream = TextStream(tokenizer, context)
    return [*(stream.push(token_id) for token_id in token_ids), stream.flush()]


@given(BUNDLED_IDS | BROKEN_IDS)
def test_the_pieces_add_up_to_the_whole(token_ids: list[int]) -> None:
    assert "".join(pieces_of(byte_level(), token_ids)) == byte_level().decode(token_ids)


@given(st.text(max_size=30) | UNUSUAL_TEXT)
def test_no_piece_of_a_good_text_holds_a_broken_character(text: str) -> None:
    pieces = pieces_of(byte_level(), byte_level().encode(text))
    assert "".join(pieces) == text
    assert sum(piece.count("\ufffd") for piece in pieces) == text.count("\ufffd")


@given(st.text(alphabet=st.sampled_from("abc .é€😀s"), min_size=1, max_size=20))
def test_byte_fallback_gives_the_text_back(text: str) -> None:
    token_ids = byte_fallback().encode(text)
    pieces = pieces_of(byte_fallback(), token_ids)
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)


@given(UNUSUAL_TEXT, UNUSUAL_TEXT)
def test_output_continues_the_prompt(prompt: str, text: str) -> None:
    context = byte_level().encode(prompt)
    assert "".join(pieces_of(byte_level(), byte_level().encode(text), context)) == text


def test_a_space_at_the_beginning_of_the_output_is_kept() -> None:
    prompt, output = byte_fallback().encode("the"), [257]
    assert byte_fallback().decode(output) == "cat"
    assert pieces_of(byte_fallback(), output, prompt) == [" cat", ""]


def test_a_character_that_the_prompt_began_belongs_to_the_output() -> None:
    ids = byte_level().encode("€")
    assert len(ids) > 1
    assert "".join(pieces_of(byte_level(), ids[1:], ids[:1])) == "€"


def test_bytes_are_held_back_until_they_are_a_character() -> None:
    ids = byte_level().encode("😀")
    pieces = pieces_of(byte_level(), ids)
    assert pieces == [*[""] * (len(ids) - 1), "😀", ""]


def test_a_character_that_never_ends_shows_at_the_end() -> None:
    assert pieces_of(byte_level(), byte_level().encode("a😀")[:-1])[-1] == "\ufffd"


def test_special_tokens_have_no_text() -> None:
    assert pieces_of(byte_level(), [0, *byte_level().encode("a"), 0]) == ["", "a", "", ""]


@pytest.mark.parametrize(("text", "expected"), [("a", "a"), (" def", " def")])
def test_a_token_by_itself_keeps_its_space(text: str, expected: str) -> None:
    (token_id,) = byte_level().encode(text)
    assert byte_level().token_text(token_id) == expected


def test_half_a_character_by_itself_has_no_text() -> None:
    assert [byte_level().token_text(token_id) for token_id in byte_level().encode("€")] == ["", "", ""]
    assert byte_fallback().token_text(257) == " cat"

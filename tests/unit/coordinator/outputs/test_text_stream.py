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
BROKEN = [i for i in range(1, 257) if "\ufffd" in byte_level().decode([i])]
BROKEN_IDS = st.lists(st.sampled_from(BROKEN), max_size=40)
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


@given(st.integers(128, 191), st.text(alphabet=st.sampled_from("é€😀"), max_size=12), st.integers(0, 1))
def test_one_broken_byte_breaks_its_stretch_of_bytes(broken: int, text: str, cut: int) -> None:
    """As the decoder shows the whole."""
    ids = [broken, *text.encode()[cut:], *byte_fallback().encode("a")]
    assert "".join(pieces_of(byte_fallback(), ids)) == byte_fallback().decode(ids)


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


class CountingTokenizer:
    """Notes how many tokens are decoded at a time."""

    def __init__(self) -> None:
        self.special_ids: frozenset[int] = byte_level().special_ids
        self.counts: list[int] = []

    def decode(self, token_ids: Sequence[int]) -> str:
        self.counts.append(len(token_ids))
        return byte_level().decode(token_ids)

    def first_text(self, token_id: int) -> str:
        return byte_level().first_text(token_id)


@pytest.mark.parametrize(
    "token_ids",
    [[0] * 200, [0, BROKEN[0]] * 100, BROKEN * 2, [*byte_level().encode("😀")[:1], *[0] * 50, *BROKEN[:60]]],
    ids=["special", "special and broken", "broken", "a character that others interrupt"],
)
def test_tokens_without_a_whole_text_are_not_decoded_again_and_again(token_ids: list[int]) -> None:
    tokenizer = CountingTokenizer()
    pieces = pieces_of(tokenizer, token_ids)  # type: ignore[arg-type]
    assert "".join(pieces) == byte_level().decode(token_ids)
    assert max(tokenizer.counts) <= 16
    broken = sum(token_id in BROKEN for token_id in token_ids)
    assert len("".join(pieces[:-1])) >= broken - 16, "text comes before the end"


@pytest.mark.parametrize("broken_count", range(20))
@pytest.mark.parametrize("text", ["😀a", "😀", "a"])
def test_a_character_is_whole_after_many_broken_ones(broken_count: int, text: str) -> None:
    ids = [*[BROKEN[0]] * broken_count, *byte_level().encode(text)]
    assert "".join(pieces_of(byte_level(), ids)) == byte_level().decode(ids)
    assert byte_level().decode(ids).endswith(text)


@pytest.mark.parametrize("count", range(1, 20))
def test_what_is_held_at_the_end_is_given_out(count: int) -> None:
    assert "".join(pieces_of(byte_level(), BROKEN[:1] * count)) == byte_level().decode(BROKEN[:1] * count)


def test_tokens_that_stand_for_nothing_are_forgotten() -> None:
    """Not special ones, which have no part in the text, but an empty one among the others."""
    tokenizer = CountingTokenizer()
    tokenizer.special_ids = frozenset()
    assert "".join(pieces_of(tokenizer, [*byte_level().encode("a"), *[0] * 100, *byte_level().encode("b")])) == "ab"  # type: ignore[arg-type]
    assert max(tokenizer.counts) <= 16


@pytest.mark.parametrize(("text", "expected"), [("a", "a"), (" def", " def")])
def test_a_token_by_itself_keeps_its_space(text: str, expected: str) -> None:
    (token_id,) = byte_level().encode(text)
    assert byte_level().token_text(token_id) == expected


def test_half_a_character_by_itself_has_no_text() -> None:
    assert [byte_level().token_text(token_id) for token_id in byte_level().encode("€")] == ["", "", ""]
    assert byte_fallback().token_text(257) == " cat"


@given(
    st.text(alphabet=st.sampled_from("ab é€😀"), max_size=12), st.text(alphabet=st.sampled_from("ab é€😀"), max_size=12)
)
def test_special_tokens_that_are_shown_stand_where_they_came(before: str, after: str) -> None:
    tokenizer = byte_level()
    (mark,) = tokenizer.special_ids
    token_ids = [*tokenizer.encode(before), mark, *tokenizer.encode(after)]
    shown = TextStream(tokenizer, shown={mark: "[M]"})
    text = "".join([*(shown.push(token_id) for token_id in token_ids), shown.flush()])
    assert text == f"{before}[M]{after}"
    assert "".join(pieces_of(tokenizer, token_ids)) == before + after


def test_a_special_token_that_is_shown_comes_after_what_was_held_back() -> None:
    (mark,) = byte_level().special_ids
    shown = TextStream(byte_level(), shown={mark: "[M]"})
    assert [shown.push(token_id) for token_id in (BROKEN[-1], mark)] == ["", "\ufffd[M]"]

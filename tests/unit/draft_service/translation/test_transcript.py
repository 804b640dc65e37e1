"""The text of a sequence in two vocabularies, under any order of appending, rolling back and forking."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from draft_service.translation.tokenization import cut
from draft_service.translation.transcript import Transcript
from draft_service.translation.translation import shared_tokens
from draft_service.translation.vocabulary import Vocabulary
from tests.tiny_tokenizers import added, byte_fallback, byte_level, files, metaspace_unigram
from tests.unit.coordinator.requests.tokenizers import BUNDLED

LETTERS = ["a", "b", "c", "Ġ", "Ã", "©", "ð", "Ł", "ĺ", "Ģ"]
"""Letters, a space, and the bytes of é and 😀."""


@cache
def reader() -> Vocabulary:
    """A target that cuts characters into bytes, with two special tokens."""
    return Vocabulary(
        files(byte_level([*LETTERS, "ab", "Ġa"], [["a", "b"], ["Ġ", "a"]], [added(12), added(13, "<x>")]))
    )


WRITERS = {
    "unigram": lambda: metaspace_unigram(["<unk>", "▁", "a", "b", "c", "é", "😀", "▁ab", "abc"], [added(9)]),
    "byte_level": lambda: byte_level([*LETTERS, "ca", "Ã©"], [["c", "a"], ["Ã", "©"]], [added(12)]),
    "byte_fallback": lambda: byte_fallback(["▁", "a", "b", "aa", "▁a"], [["a", "a"], ["▁", "a"]]),
}


@cache
def writer(name: str) -> Vocabulary:
    return Vocabulary(files(WRITERS[name]()), writes=True)


def transcript(name: str) -> Transcript:
    shared = shared_tokens(reader(), writer(name))
    return Transcript(reader(), writer(name), {t: own for t, own in shared.items() if t in reader().specials})


def text_of(vocabulary: Vocabulary, token_ids: list[int]) -> bytes:
    return b"".join(vocabulary.pieces.get(token, b"") for token in token_ids)


def check(name: str, made: Transcript, tokens: list[int]) -> None:
    """The draft's tokens are of the same text, as far as it has tokens for it, and as if cut at once."""
    assert len(made.ends) == len(tokens)
    own = text_of(writer(name), made.own_ids)
    wanted = text_of(reader(), tokens)
    if name == "unigram":  # it has no token for single bytes of a character, nor for some letters
        known = {byte for piece in writer(name).pieces.values() for byte in piece}
        kept = bytes(byte for byte in wanted if byte in known)
        assert len(own.lstrip(b" ")) <= len(wanted)
        assert set(own) <= set(kept) | {0x20}
    else:
        assert own.removeprefix(b" ") == wanted.removeprefix(b" ")
    assert made.own_ends == sorted(made.own_ends)


steps = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(0, 12), max_size=8), st.booleans()), min_size=1, max_size=8
)


@given(st.sampled_from(sorted(WRITERS)), steps)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_both_have_the_same_text_after_any_rollbacks_and_forks(
    name: str, steps: list[tuple[int, list[int], bool]]
) -> None:
    made, tokens = transcript(name), []
    for dropped, new, forks in steps:
        same = max(0, len(tokens) - dropped)
        tokens = [*tokens[:same], *new]
        if forks:
            made = made.forked(same)
        before = list(made.own_ids)
        changed = made.follow(same, new)
        assert made.own_ids[:changed] == before[:changed]
        check(name, made, tokens)


@given(st.text(max_size=60), st.lists(st.integers(0, 60), max_size=4))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_the_bundled_tokenizer_gives_any_text_back_however_it_comes(text: str, cuts: list[int]) -> None:
    """Unicode and emoji, in pieces that may divide a character."""
    own, data = bundled(), text.encode()
    made = Transcript(own, writer("byte_fallback"), {})
    tokens = [own.by_bytes[bytes([byte])] for byte in data]
    start = 0
    for end in [*sorted(cuts), len(tokens)]:
        made.follow(len(made.ends), tokens[start:end] if end > start else [])
        start = max(start, min(end, len(tokens)))
    assert text_of(writer("byte_fallback"), made.own_ids).removeprefix(b" ") == data.removeprefix(b" ")


@given(st.binary(max_size=200))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_bytes_that_are_no_text_are_cut_without_loss(data: bytes) -> None:
    found = cut(bundled(), data)
    assert text_of(bundled(), found.token_ids) == data
    assert found.ends[-1:] == ([len(data)] if data else [])


@cache
def bundled() -> Vocabulary:
    from specpair.model_info import TokenizerFiles

    data = (BUNDLED / "tokenizer.json").read_bytes()
    end = "<|endoftext|>"
    return Vocabulary(TokenizerFiles(tokenizer_json=data, chat_template="", bos_token=end, eos_token=end), writes=True)


def test_tokens_are_joined_as_the_drafts_tokenizer_joins_them_and_what_stays_is_kept() -> None:
    made = transcript("byte_level")
    made.follow(0, [1, 2])  # b, c
    assert made.own_ids == [1, 2]
    assert made.follow(2, [0]) == 1  # c and a become one token; b stays
    assert made.own_ids == [1, 10]
    assert made.follow(3, [1]) == 2
    assert made.follow(2, []) == 1  # the rollback divides it again
    assert made.own_ids == [1, 2]


def test_special_tokens_are_matched_by_role_and_by_name() -> None:
    assert shared_tokens(reader(), writer("byte_level"))[12] == 12
    assert shared_tokens(reader(), writer("unigram"))[12] == 9
    assert 13 not in shared_tokens(reader(), writer("unigram"))
    made = transcript("byte_level")
    made.follow(0, [12, 0, 13, 1])
    assert made.own_ids[:2] == [12, 0]
    assert text_of(writer("byte_level"), made.own_ids[2:]) == b"b"  # it has no letters for the other's name


def test_a_change_costs_the_same_after_a_long_text() -> None:
    """Counted, not timed: what is cut again is a few tokens."""
    made = transcript("byte_level")
    made.follow(0, [0, 1, 2, 3] * 2000)
    seen: list[int] = []
    right = made._cut_from

    def counting(start: int):
        seen.append(len(made.text) - start)
        return right(start)

    made._cut_from = counting  # type: ignore[method-assign]
    for _ in range(20):
        made.follow(len(made.ends), [0, 1])
    assert max(seen) < 64

"""What tokens stand for, by kind of tokenizer."""

import json

import pytest

from draft_service.translation.tokenization import cut
from draft_service.translation.vocabulary import Vocabulary
from specpair.errors import VocabularyMismatchError
from specpair.model_info import TokenizerFiles
from tests.tiny_tokenizers import (
    Document,
    added,
    bpe,
    byte_fallback,
    byte_level,
    document,
    files,
    metaspace_unigram,
    word_pieces,
)
from tests.unit.coordinator.requests.tokenizers import BUNDLED


def test_letters_of_byte_level_tokens_are_bytes() -> None:
    vocabulary = Vocabulary(files(byte_level(["a", "Ġa", "Ã", "Ċ"], [], [added(4)])))
    assert vocabulary.pieces == {0: b"a", 1: b" a", 2: b"\xc3", 3: b"\n"}
    assert (vocabulary.eos, vocabulary.bos, vocabulary.specials) == (4, None, {4: "<end>"})


def test_marks_of_unigram_tokens_are_spaces_and_the_unknown_token_is_nothing() -> None:
    vocabulary = Vocabulary(files(metaspace_unigram(["<unk>", "▁", "▁é", "a▁b"])))
    assert vocabulary.pieces == {1: b" ", 2: " é".encode(), 3: b"a b"}
    assert vocabulary.drops_first_space


def test_names_of_bytes_are_bytes_where_the_tokenizer_falls_back_to_them() -> None:
    vocabulary = Vocabulary(files(byte_fallback(["▁", "A"], [])))
    assert vocabulary.pieces[1] == vocabulary.pieces[2 + ord("A")] == b"A"
    assert vocabulary.pieces[2 + 0xC3] == b"\xc3"
    assert vocabulary.by_bytes[b"A"] == 1
    named = Vocabulary(files(byte_level(["<0x41>", "a"], [])))
    assert named.pieces[0] == b"<0x41>"


def test_every_token_of_the_bundled_tokenizer_gives_its_text_back() -> None:
    made = TokenizerFiles(
        tokenizer_json=(BUNDLED / "tokenizer.json").read_bytes(),
        chat_template="",
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
    )
    vocabulary = Vocabulary(made)
    text = "def naïve(x):\n    return '漢字' # 😀\t\r\n"
    assert b"".join(vocabulary.pieces[i] for i in vocabulary.encode(text)) == text.encode()
    assert len(vocabulary.pieces) == 4095
    assert vocabulary.bos == vocabulary.eos == 0


def test_text_that_the_tokenizer_changes_is_cut_byte_by_byte() -> None:
    made = byte_level(["e", "Ì", "ģ", "Ã", "©"], [])
    vocabulary = Vocabulary(files({**made, "normalizer": {"type": "NFC"}}), writes=True)
    decomposed = "e\N{COMBINING ACUTE ACCENT}".encode()
    assert b"".join(vocabulary.pieces[i] for i in cut(vocabulary, decomposed).token_ids) == decomposed


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (word_pieces(), "WordPiece"),
        (document({"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}), "WordLevel"),
        (document(bpe(["a"], [])), "neither bytes nor marks"),
        ({**byte_level(["a"], []), "normalizer": {"type": "Lowercase"}}, "Lowercase"),
        ({**byte_level(["a"], []), "normalizer": {"type": "BertNormalizer"}}, "BertNormalizer"),
        ({"model": 3}, "cannot be read"),
        (byte_level(["a"], [], [added(1 << 21)]), "cannot be read|ids of"),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name(made: Document, reason: str) -> None:
    with pytest.raises(VocabularyMismatchError, match=reason):
        Vocabulary(files(made), writes=True)


def test_odd_files_are_refused_as_others_are() -> None:
    for data in (b"", b"[]", b"{}", b"\xff", json.dumps({"model": None}).encode(), b"[" * 100_000):
        odd = TokenizerFiles(tokenizer_json=data, chat_template="", bos_token="", eos_token="")
        with pytest.raises(VocabularyMismatchError):
            Vocabulary(odd)

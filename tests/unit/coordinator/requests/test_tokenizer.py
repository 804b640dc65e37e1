"""The tokenizer, its chat template, and the comparison of two vocabularies."""

import asyncio
import json
from collections.abc import Callable

import pytest

from coordinator.peers.vocabulary import check_vocabularies
from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import InvalidFieldError, NotSupportedError, SpecpairError, VocabularyMismatchError
from specpair.model_info import TokenizerFiles
from tests.tiny_tokenizers import bpe, document, files, word_pieces
from tests.unit.coordinator.fake_sequences import model_info
from tests.unit.coordinator.requests.tokenizers import BUNDLED, byte_fallback, byte_level, odd_tokenizer


def with_template(template: str) -> Tokenizer:
    data = (BUNDLED / "tokenizer.json").read_bytes()
    return Tokenizer(
        TokenizerFiles(tokenizer_json=data, chat_template=template, bos_token="<|endoftext|>", eos_token="</s>")
    )


def with_changed_token(old: str, new: str) -> Tokenizer:
    document = json.loads((BUNDLED / "tokenizer.json").read_bytes())
    vocabulary = document["model"]["vocab"]
    vocabulary[new] = vocabulary.pop(old)
    document["model"]["merges"] = [pair for pair in document["model"]["merges"] if old not in ("".join(pair), *pair)]
    data = json.dumps(document).encode()
    return Tokenizer(TokenizerFiles(tokenizer_json=data, chat_template="", bos_token="", eos_token=""))


def test_a_conversation_is_laid_out_by_the_template() -> None:
    messages = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    template = "{{ bos_token }}" + messages + "{% if add_generation_prompt %}>{% endif %}"
    tokenizer = with_template(template)
    ids = tokenizer.encode_chat([{"role": "user", "content": "hi"}])
    assert ids[0] == 0
    assert tokenizer.decode(ids) == "[user]hi>"


async def test_a_long_text_keeps_nobody_waiting() -> None:
    """Others have their turns while it becomes tokens, in the thread that it gets."""
    tokenizer = with_template("")
    reading = asyncio.create_task(asyncio.to_thread(tokenizer.encode, "a" * 500_000))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert tokenizer.decode(await reading) == "a" * 500_000
    assert turns > 30


def test_a_template_may_refuse_and_may_not_reach_out() -> None:
    with pytest.raises(InvalidFieldError, match="only one message"):
        with_template("{{ raise_exception('only one message') }}").encode_chat([])
    with pytest.raises(InvalidFieldError, match="chat"):
        with_template("{{ ''.__class__.__mro__[1].__subclasses__() }}").encode_chat([])
    with pytest.raises(InvalidFieldError, match="chat"):
        with_template("{{ messages.append(1) }}").encode_chat([])


def test_without_a_template_chat_is_not_supported() -> None:
    with pytest.raises(NotSupportedError, match="no chat template"):
        byte_fallback().encode_chat([{"role": "user", "content": "hi"}])


def test_broken_files_are_named() -> None:
    with pytest.raises(SpecpairError, match="tokenizer cannot be read"):
        Tokenizer(TokenizerFiles(tokenizer_json=b"{}", chat_template="", bos_token="", eos_token=""))


def test_a_template_that_cannot_be_read_refuses_chat_alone(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = with_template("{% for %}")
    assert "the chat template cannot be read" in caplog.text
    assert tokenizer.encode("a")
    with pytest.raises(NotSupportedError, match="no chat template"):
        tokenizer.encode_chat([{"role": "user", "content": "hi"}])


def test_one_vocabulary_padded_to_two_widths_is_a_pair() -> None:
    check_vocabularies(byte_level(), byte_level(), model_info(vocab_size=4096), model_info(vocab_size=4224))


def test_the_first_id_that_differs_is_named_with_both_strings() -> None:
    changed = with_changed_token("Ġdef", "Ġdeg")
    (token_id,) = byte_level().encode(" def")
    with pytest.raises(VocabularyMismatchError, match=f"token {token_id} is 'Ġdeg' in the draft, but 'Ġdef'") as caught:
        check_vocabularies(changed, byte_level(), model_info(), model_info())
    assert caught.value.metadata == {"token_id": str(token_id), "draft_token": "Ġdeg", "target_token": "Ġdef"}


def test_a_token_that_only_one_has_is_a_difference() -> None:
    with pytest.raises(VocabularyMismatchError, match="token 0 is '<0x00>' in the draft"):
        check_vocabularies(byte_fallback(), byte_level(), model_info(), model_info())
    longer = byte_level().vocabulary()
    assert sorted(longer) == list(range(4096))


def test_without_two_tokenizers_the_sizes_must_agree() -> None:
    check_vocabularies(None, None, model_info(), model_info())
    check_vocabularies(None, byte_level(), model_info(vocab_size=0), model_info())
    check_vocabularies(None, byte_level(), model_info(), model_info())
    with pytest.raises(VocabularyMismatchError, match="50 token ids"):
        check_vocabularies(None, None, model_info(vocab_size=50), model_info())


def test_files_at_which_the_library_panics_are_refused_as_others_are() -> None:
    with pytest.raises(SpecpairError, match="tokenizer"):
        Tokenizer(odd_tokenizer())


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_the_bytes_of_tokens_are_those_of_their_text(make: Callable[[], Tokenizer]) -> None:
    """Of whole characters as of parts, which have no text by themselves."""
    tokenizer, text = make(), " the cat é😀€\ufffd\x00."
    token_ids = tokenizer.encode(text.removeprefix(" ") if make is byte_fallback else text)
    assert sum(not tokenizer.token_text(token_id) for token_id in token_ids) >= 7
    pieces = [tokenizer.token_text(token_id).encode() or tokenizer.token_bytes(token_id) for token_id in token_ids]
    assert b"".join(piece for piece in pieces if piece is not None) == text.encode()
    assert tokenizer.token_bytes(10**6) is None


def test_every_byte_is_some_token_of_byte_level() -> None:
    tokenizer = byte_level()
    single = {token_id: piece for token_id, piece in tokenizer.vocabulary().items() if len(piece) == 1}
    assert sorted(tokenizer.token_bytes(token_id) or b"" for token_id in single) == [bytes([n]) for n in range(256)]


def test_bytes_are_not_made_up() -> None:
    """Neither for special tokens, nor where a tokenizer says nothing of bytes."""
    special_ids = byte_level().special_ids
    assert special_ids and {byte_level().token_bytes(token_id) for token_id in special_ids} == {None}
    words = Tokenizer(files(word_pieces()))
    assert {words.token_bytes(token_id) for token_id in range(3)} == {None}
    without_decoder = Tokenizer(files(document(bpe(["Ġ", "<0xF0>"], []))))
    assert {without_decoder.token_bytes(token_id) for token_id in range(2)} == {None}

"""The bytes that each token of a tokenizer stands for, read from its tokenizer.json.

Tokens of two tokenizers are compared as bytes, not as strings: `Ġthe` of one that works on bytes and `▁the` of one that
marks spaces are the same token, and so are `<0xC3>` and the byte-level `Ã`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from specpair.errors import VocabularyMismatchError

MARK = "\N{LOWER ONE EIGHTH BLOCK}"
"""Stands for a space in the tokens of SentencePiece."""
LOSSY_MODELS = {"WordPiece", "WordLevel"}
LOSSY_NORMALIZERS = {"Lowercase", "StripAccents", "BertNormalizer", "Strip"}
KNOWN_NORMALIZERS = {"Prepend", "Replace", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "ByteLevel"}
"""Those that keep a text, or change how some characters are written: such characters become bytes of the text that is
meant (`tokenization`)."""


@dataclass(frozen=True, kw_only=True)
class TokenBytes:
    """What the tokens of one tokenizer stand for."""

    pieces: dict[int, bytes]
    """The bytes of each token of text, at least one."""
    fallbacks: frozenset[int]
    """Those that stand for a single byte where there is no other token, as `<0x0A>`."""
    specials: dict[int, str]
    """Tokens that are no text, with their names."""
    drops_first_space: bool
    """Whether a space before the first word of a text is not part of the text."""


def read_token_bytes(document: dict[str, Any]) -> TokenBytes:
    """From a tokenizer.json. Raises VocabularyMismatchError, with the reason, if tokens do not determine the text."""
    model = document.get("model") or {}
    kind = model.get("type")
    if kind in LOSSY_MODELS:
        raise VocabularyMismatchError(f"the tokens of a {kind} tokenizer do not say where white space is")
    added = {token["id"]: token for token in document.get("added_tokens") or ()}
    specials = {token_id: token["content"] for token_id, token in added.items() if token.get("special")}
    decode = _decoder(document)
    texts = {token_id: piece for piece, token_id in _model_tokens(model) if token_id not in added}
    unknown = _unknown(model, texts)
    pieces = {token_id: decode(piece) for token_id, piece in texts.items() if token_id != unknown}
    pieces |= {token_id: token["content"].encode() for token_id, token in added.items() if token_id not in specials}
    fallbacks = frozenset(i for i, piece in texts.items() if is_byte_name(piece)) if _falls_back(document) else ()
    return TokenBytes(
        pieces={token_id: data for token_id, data in pieces.items() if data},
        fallbacks=frozenset(fallbacks),
        specials=specials,
        drops_first_space=_adds_first_space(document),
    )


def check_writer(document: dict[str, Any]) -> None:
    """Raises VocabularyMismatchError for a tokenizer that loses a part of every text that it reads."""
    for step in _steps(document.get("normalizer")):
        name = str(step.get("type"))
        if name in LOSSY_NORMALIZERS:
            raise VocabularyMismatchError(f"the draft's tokenizer changes texts: it has the normalizer {name}")
        if name not in KNOWN_NORMALIZERS:
            raise VocabularyMismatchError(f"the draft's tokenizer has the normalizer {name}, which is not known")


def is_byte_name(piece: str) -> bool:
    """Whether a token is named for a byte, as `<0x0A>`."""
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">") and _is_hexadecimal(piece[3:5])


def _is_hexadecimal(digits: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in digits)


def _model_tokens(model: dict[str, Any]) -> Iterator[tuple[str, int]]:
    vocabulary = model.get("vocab") or {}
    if isinstance(vocabulary, dict):
        yield from vocabulary.items()
    else:  # Unigram: pairs of a piece and its score
        yield from ((entry[0], token_id) for token_id, entry in enumerate(vocabulary))


def _unknown(model: dict[str, Any], texts: dict[int, str]) -> int | None:
    """The token that stands for whatever has none."""
    if model.get("unk_id") is not None:
        return model["unk_id"]
    name = model.get("unk_token")
    return next((token_id for token_id, piece in texts.items() if piece == name), None)


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder, sequences taken apart."""
    if not isinstance(part, dict):
        return
    inner = [part[name] for name in ("normalizers", "pretokenizers", "decoders") if name in part]
    if part.get("type") == "Sequence" and inner:
        for step in inner[0]:
            yield from _steps(step)
    else:
        yield part


def _all_steps(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for name in ("normalizer", "pre_tokenizer", "decoder") for step in _steps(document.get(name))]


def _falls_back(document: dict[str, Any]) -> bool:
    return bool(document["model"].get("byte_fallback")) or any(
        step.get("type") == "ByteFallback" for step in _all_steps(document)
    )


def _adds_first_space(document: dict[str, Any]) -> bool:
    for step in _all_steps(document):
        if step.get("type") == "Prepend":
            return True
        if step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never":
            return bool(step.get("add_prefix_space", True))
    return False


def _decoder(document: dict[str, Any]) -> Any:
    """A function from the string of a token to its bytes. Raises VocabularyMismatchError for one that is not known."""
    steps = _all_steps(document)
    if any(step.get("type") == "ByteLevel" for step in steps):
        return _of_byte_letters
    marks = [step.get("replacement", MARK) for step in steps if step.get("type") == "Metaspace"]
    marks += [
        MARK for step in steps if step.get("type") == "Replace" and MARK in (_replaced(step), step.get("content"))
    ]
    if not marks:
        raise VocabularyMismatchError("a tokenizer has neither bytes nor marks for spaces: its tokens give no text")
    mark, falls_back = marks[0], _falls_back(document)

    def decode(piece: str) -> bytes:
        if falls_back and is_byte_name(piece):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(mark, " ").encode("utf-8", "replace")

    return decode


def _replaced(step: dict[str, Any]) -> str:
    pattern = step.get("pattern")
    return pattern.get("String", "") if isinstance(pattern, dict) else ""


def _of_byte_letters(piece: str) -> bytes:
    letters = byte_letters()
    if all(letter in letters for letter in piece):
        return bytes(letters[letter] for letter in piece)
    return piece.encode("utf-8", "replace")


@cache
def byte_letters() -> dict[str, int]:
    """The letter for each byte in byte-level vocabularies (GPT-2): printable bytes stand for themselves, the others for
    the letters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}

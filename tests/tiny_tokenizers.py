"""Tokenizers of a handful of tokens, of each kind that there is, for tiny models with vocabularies of their own."""

import json
from pathlib import Path
from typing import Any

from specpair.model_info import TokenizerFiles
from tests.tiny_models import make_model

END = "<end>"
Document = dict[str, Any]


def added(token_id: int, content: str = END) -> Document:
    """A special token."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": content, "special": True, **flags}


def document(model: Document, **parts: Any) -> Document:
    """A tokenizer.json."""
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return {"version": "1.0", "added_tokens": [], **empty, **parts, "model": model}


def bpe(pieces: list[str], merges: list[list[str]], **settings: Any) -> Document:
    vocabulary = {piece: token_id for token_id, piece in enumerate(pieces)}
    return {"type": "BPE", "vocab": vocabulary, "merges": merges, "unk_token": None, **settings}


def byte_level(pieces: list[str], merges: list[list[str]], specials: list[Document] | None = None) -> Document:
    """BPE on bytes; pieces are written in the letters of GPT-2."""
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return document(bpe(pieces, merges), added_tokens=specials or [], pre_tokenizer=step, decoder=step)


def metaspace_unigram(pieces: list[str], specials: list[Document] | None = None) -> Document:
    """Unigram on marked spaces; the first piece is the unknown one."""
    model = {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [[piece, -1.0 - 0.1 * token_id] for token_id, piece in enumerate(pieces)],
        "byte_fallback": False,
    }
    step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return document(model, added_tokens=specials or [], pre_tokenizer=step, decoder=step)


def byte_fallback(pieces: list[str], merges: list[list[str]]) -> Document:
    """BPE on marked spaces, with all bytes after the pieces, and no pre-tokenizer, as in Llama 2."""
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return document(
        bpe([*pieces, *names], merges, byte_fallback=True, fuse_unk=True),
        normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]},
        decoder={"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]},
    )


def word_pieces() -> Document:
    """WordPiece, which drops white space."""
    model = {
        "type": "WordPiece",
        "vocab": {"[UNK]": 0, "a": 1, "##b": 2},
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    step = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return document(model, pre_tokenizer={"type": "BertPreTokenizer"}, decoder=step)


def files(made: Document, bos: str = "", eos: str = END) -> TokenizerFiles:
    """As a service hands them over."""
    return TokenizerFiles(tokenizer_json=json.dumps(made).encode(), chat_template="", bos_token=bos, eos_token=eos)


def make_speaking_model(folder: Path, made: Document, **settings: Any) -> Path:
    """Saves a random model with this tokenizer."""
    make_model(folder, **settings)
    write_tokenizer(folder, made)
    return folder


def write_tokenizer(folder: Path, made: Document) -> None:
    """Saves a tokenizer beside a model."""
    (folder / "tokenizer.json").write_text(json.dumps(made))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))

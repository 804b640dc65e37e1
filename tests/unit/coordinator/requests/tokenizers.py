"""Two tokenizers for tests: the bundled one (bytes), and a small one that falls back to bytes (sentencepiece's way)."""

import json
from functools import cache
from pathlib import Path

from coordinator.requests.tokenizer import Tokenizer
from specpair.model_info import TokenizerFiles

BUNDLED = Path(__file__).parents[4] / "models" / "bundled" / "target"
WORDS = ["▁the", "▁cat", "▁sat", "s", "é", "▁", "a", "b", "c", "."]


@cache
def byte_level() -> Tokenizer:
    return Tokenizer(
        TokenizerFiles(
            tokenizer_json=(BUNDLED / "tokenizer.json").read_bytes(),
            chat_template=(BUNDLED / "chat_template.jinja").read_text(),
            bos_token="<|endoftext|>",
            eos_token="<|endoftext|>",
        )
    )


@cache
def byte_fallback() -> Tokenizer:
    """Ids 0 to 255 are bytes; the words follow. Its decoder drops the first space of a text."""
    tokens = [f"<0x{byte:02X}>" for byte in range(256)] + WORDS
    document = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "fuse_unk": True,
            "unk_token": None,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [],
        },
    }
    return Tokenizer(
        TokenizerFiles(tokenizer_json=json.dumps(document).encode(), chat_template="", bos_token="", eos_token="")
    )


def odd_tokenizer() -> TokenizerFiles:
    """Files at which the library panics."""
    document = {
        "version": "1.0",
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": ""},
        "model": {"type": "WordLevel", "vocab": {"b": 0}, "unk_token": "b"},
    }
    return TokenizerFiles(tokenizer_json=json.dumps(document).encode(), chat_template="", bos_token="", eos_token="")

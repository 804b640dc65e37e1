"""Tiny models whose tokens have texts: what structured outputs need."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from tests.tiny_encoder_decoders import CONFIGS as ENCODER_DECODERS
from tests.tiny_encoder_decoders import make_encoder_decoder
from tests.tiny_models import make_model

END = "<|end|>"
LETTERS = "abcd"
MERGES = [("a", "b"), ("b", "c"), ("ab", "c")]
TEXTS = (END, *LETTERS, *("".join(pair) for pair in MERGES))
"""The text of each token; the first ends a text."""


def worded_tokenizer() -> Tokenizer:
    """Letters and some pairs of them."""
    ids = {text: token for token, text in enumerate(TEXTS)}
    tokenizer = Tokenizer(BPE(vocab=ids, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    return tokenizer


def make_worded_model(folder: Path, kind: str = "llama", **shape: Any) -> Path:
    """Saves a random model of `kind` over these tokens, and returns its folder."""
    make = make_encoder_decoder if kind in ENCODER_DECODERS else make_model
    make(folder, kind, vocab_size=len(TEXTS), eos_token_id=0, **shape)
    PreTrainedTokenizerFast(tokenizer_object=worded_tokenizer(), eos_token=END).save_pretrained(folder)
    return folder

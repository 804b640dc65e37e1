"""Reads the tokenizer and the chat template of a GGUF file."""

from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specpair.models.gguf_header import GgufHeader
from specpair.models.gguf_reader import FILE

SPLITS = "tokenizer.ggml.pre"
DIGITS_ALONE = {"codeshell", "command-r", "exaone", "minerva-7b", "refact", "smollm", "starcoder"}
"""Ways of splitting text, as llama.cpp names them, in which every digit stands alone; transformers does not know them.
With the right split "   5" begins with one token of three spaces."""


def read_gguf_tokenizer(folder: str, header: GgufHeader) -> PreTrainedTokenizerFast:
    """The tokenizer of the file that is alone in `folder`."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, gguf_file=FILE)
    if header.metadata.get(SPLITS) in DIGITS_ALONE:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    return tokenizer

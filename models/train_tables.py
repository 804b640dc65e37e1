"""Count how often each token occurs, and follows another: `python models/train_tables.py`, for the bundled pair.

The unigram and bigram drafters use the table. For your own pair, name its tokenizer and texts like those that it will
generate: `python models/train_tables.py --model Qwen/Qwen3-0.6B --output tables.safetensors *.txt`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from corpus import read_texts
from tokenizers import Tokenizer

from draft_service.table_file import write_tables
from specpair.model_info import TokenizerFiles
from specpair.models.loading import read_tokenizer
from specpair.speculation.tables import Tables, count_corpus

BUNDLED_DRAFT = Path(__file__).parent / "bundled" / "draft"


def encode(files: TokenizerFiles, texts: list[str]) -> np.ndarray:
    """All texts as one array of token ids `[tokens]`; each begins with the end-of-text token, if there is one."""
    tokenizer = Tokenizer.from_buffer(files.tokenizer_json)
    end = tokenizer.token_to_id(files.eos_token) if files.eos_token else None
    opening = [] if end is None else [end]
    batch = tokenizer.encode_batch(texts, add_special_tokens=False)
    return np.concatenate([np.array([*opening, *encoding.ids], dtype=np.int64) for encoding in batch])


def count(files: TokenizerFiles, texts: list[str]) -> Tables:
    return count_corpus(encode(files, texts), Tokenizer.from_buffer(files.tokenizer_json).get_vocab_size())


def texts_of(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        yield path.read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(BUNDLED_DRAFT), help="folder or Hugging Face id with the tokenizer")
    parser.add_argument("--output", type=Path, default=BUNDLED_DRAFT / "tables.safetensors")
    parser.add_argument("texts", type=Path, nargs="*", help="default: the training texts of the bundled pair")
    arguments = parser.parse_args()
    files = read_tokenizer(arguments.model)
    if files is None:
        parser.error(f"{arguments.model} has no readable tokenizer")
    tables = count(files, list(texts_of(arguments.texts)) or read_texts()[0])
    write_tables(arguments.output, tables, files)
    share = tables.counts.sum() / max(1, tables.unigram.sum())
    print(f"{arguments.output}: {len(tables.counts)} successors with {share:.2f} of the corpus's pairs")


if __name__ == "__main__":
    main()

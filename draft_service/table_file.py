"""Reads and writes tables of counts as safetensors files, with a hash of their vocabulary in the metadata."""

import hashlib
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from specpair.errors import ModelRefusedError
from specpair.model_info import TokenizerFiles
from specpair.speculation.tables import Tables

FORMAT = "specpair tables 1"


def vocabulary_hash(tokenizer: TokenizerFiles) -> str:
    """SHA-256 of all token strings in the order of their ids. Tokenizers with the same tokens have the same hash,
    whatever the layout of their files."""
    vocabulary = Tokenizer.from_buffer(tokenizer.tokenizer_json).get_vocab(with_added_tokens=True)
    digest = hashlib.sha256()
    for token, token_id in sorted(vocabulary.items(), key=lambda item: item[1]):
        digest.update(f"{token_id} {len(token)} {token}".encode())
    return digest.hexdigest()


def write_tables(path: Path, tables: Tables, tokenizer: TokenizerFiles) -> None:
    metadata = {
        "format": FORMAT,
        "vocab_size": str(len(tables.unigram)),
        "vocabulary_sha256": vocabulary_hash(tokenizer),
    }
    save_file(tables._asdict(), path, metadata=metadata)


def read_tables(path: Path, tokenizer: TokenizerFiles | None = None) -> Tables:
    """Reads tables from a file. Raises ModelRefusedError if they are damaged or have another vocabulary.

    Without a tokenizer the vocabulary is not checked. Tables of another vocabulary would only lower acceptance.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tables = Tables(*(file.get_tensor(name) for name in Tables._fields))
    except (OSError, SafetensorError, AttributeError) as error:  # AttributeError: an array without dimensions
        raise ModelRefusedError(f"{path.name} cannot be read as tables of counts: {error}") from error
    if metadata.get("format") != FORMAT:
        raise ModelRefusedError(f"{path.name} holds no tables of counts that this version can read")
    check_arrays(path.name, tables, metadata.get("vocab_size", ""))
    if tokenizer is not None and metadata.get("vocabulary_sha256") != vocabulary_hash(tokenizer):
        raise ModelRefusedError(f"{path.name} was made with another tokenizer than the model's")
    return tables


def check_arrays(name: str, tables: Tables, vocab_size: str) -> None:
    """Raises ModelRefusedError unless all offsets and tokens are in range."""
    if not are_lists(tables) or vocab_size != str(len(tables.unigram)) or not fit_together(tables):
        raise ModelRefusedError(f"{name} is damaged: its tables do not fit together")


def are_lists(tables: Tables) -> bool:
    return all(array.ndim == 1 and array.dtype.kind == "u" for array in tables)


def fit_together(tables: Tables) -> bool:
    size, offsets = len(tables.unigram), tables.offsets.astype(np.int64)
    return bool(
        tables.unigram.any()
        and len(offsets) == size + 1
        and offsets[0] == 0
        and (np.diff(offsets) >= 0).all()
        and offsets[-1] == len(tables.successors) == len(tables.counts)
        and (tables.successors < size).all()
        and (tables.counts > 0).all()
        and are_unique(tables.successors, offsets)
        and (tables.unigram[np.diff(offsets) > 0] > 0).all()
    )


def are_unique(successors: np.ndarray, offsets: np.ndarray) -> bool:
    """Whether no token has the same successor twice."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return len(np.unique(rows * (len(offsets) - 1) + successors)) == len(successors)

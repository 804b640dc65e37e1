"""Prompts that the bundled pair was not trained on: beginnings of the held-out standard library files."""

import sys
from pathlib import Path

from tokenizers import Tokenizer

sys.path.append(str(Path(__file__).parents[1] / "models"))

from corpus import read_texts  # pyright: ignore[reportMissingImports] (scripts, not a package)

LEAST_CHARACTERS = 1200


def held_out_prompts(count: int | None = None) -> list[str]:
    """The first third of up to `count` validation files that are long enough, at most 600 characters of each."""
    texts = [text for text in read_texts()[1] if len(text) >= LEAST_CHARACTERS]
    return [text[: min(len(text) // 3, 600)] for text in texts[:count]]


def token_prompts(model: str, length: int, count: int | None = None) -> list[list[int]]:
    """The same as tokens, exactly `length` of each, so that they can be batched without padding.

    Texts with fewer tokens are left out. Raises ValueError if no text has enough.
    """
    tokenizer = read_tokenizer(model)
    encoded = (tokenizer.encode(text).ids for text in held_out_prompts())
    prompts = [ids[:length] for ids in encoded if len(ids) >= length][:count]
    if not prompts:
        raise ValueError(f"no held-out text has {length} tokens")
    return prompts


def read_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a folder or a Hugging Face id."""
    path = Path(model) / "tokenizer.json"
    return Tokenizer.from_file(str(path)) if path.exists() else Tokenizer.from_pretrained(model)


def long_prompt(model: str, length: int) -> list[int]:
    """Exactly `length` tokens of held-out files, one file after the other; they repeat from the first."""
    tokenizer = read_tokenizer(model)
    ids: list[int] = []
    while len(ids) < length:
        for text in read_texts()[1]:
            ids += tokenizer.encode(text).ids
            if len(ids) >= length:
                break
    return ids[:length]

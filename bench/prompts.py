"""Prompts that the pair was not trained on: beginnings of held-out standard library files, or questions to answer."""

import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

sys.path.append(str(Path(__file__).parents[1] / "models"))

from corpus import read_texts  # pyright: ignore[reportMissingImports] (scripts, not a package)

LEAST_CHARACTERS = 1200
MOST_CHARACTERS = 600
"""Of a prompt, unless it has to be longer."""
CHARACTERS_OF_TOKEN = 4
"""Characters that are read for each token of a longer prompt."""
QUESTIONS = (
    "Explain in detail why the sky is blue during the day and red in the evening.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "How do bees make honey? Describe every step.",
    "Give me a plan for learning to play the guitar in six months, week by week.",
    "What were the main causes of the First World War?",
    "Write a letter to a friend who is about to move to another country.",
    "Describe how a refrigerator works to a curious ten year old.",
    "Compare living in a large city with living in a small village.",
    "What should I look for when I buy a used bicycle? Make a list with reasons.",
    "Tell me about the life of whales, from birth to old age.",
)
"""Questions with long answers."""


def held_out_prompts(count: int | None = None, characters: int = MOST_CHARACTERS) -> list[str]:
    """The first third of up to `count` validation files that are long enough, at most so many characters of each."""
    texts = [text for text in read_texts()[1] if len(text) >= LEAST_CHARACTERS]
    return [text[: min(len(text) // 3, characters)] for text in texts[:count]]


def token_prompts(model: str, length: int, count: int | None = None) -> list[list[int]]:
    """The same as tokens, exactly `length` of each, so that they can be batched without padding.

    Texts with fewer tokens are left out. Raises ValueError if no text has enough.
    """
    tokenizer = read_tokenizer(model)
    characters = max(MOST_CHARACTERS, CHARACTERS_OF_TOKEN * length)
    encoded = (tokenizer.encode(text).ids for text in held_out_prompts(characters=characters))
    prompts = [ids[:length] for ids in encoded if len(ids) >= length][:count]
    if not prompts:
        raise ValueError(f"no held-out text has {length} tokens")
    return prompts


def chat_prompts(model: str, count: int | None = None) -> list[list[int]]:
    """QUESTIONS as tokens in the model's chat template. `model` is a folder, a GGUF file or a Hugging Face id."""
    from transformers import AutoTokenizer  # loads torch

    path = Path(model)
    where: dict[str, Any] = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    tokenizer: Any = AutoTokenizer.from_pretrained(path.parent if where else model, **where)
    asked = ([{"role": "user", "content": question}] for question in QUESTIONS[:count])
    texts = (tokenizer.apply_chat_template(each, add_generation_prompt=True, tokenize=False) for each in asked)
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


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

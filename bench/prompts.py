"""Prompts that the bundled pair was not trained on: beginnings of the held-out standard library files."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "models"))

from corpus import read_texts  # pyright: ignore[reportMissingImports] (scripts, not a package)

LEAST_CHARACTERS = 1200


def held_out_prompts(count: int) -> list[str]:
    """The first third of up to `count` validation files that are long enough, at most 600 characters of each."""
    texts = [text for text in read_texts()[1] if len(text) >= LEAST_CHARACTERS]
    return [text[: min(len(text) // 3, 600)] for text in texts[:count]]

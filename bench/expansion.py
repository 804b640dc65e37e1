"""The bundled target at the cost of a larger model; see models/expand."""

import json
from pathlib import Path
from typing import Any, NamedTuple

LLAMA_3_2 = {"llama-3.2-1b": "1B", "llama-3.2-3b": "3B"}
LLAMA_3_2_VOCABULARY = 128_256
SIZES = ("100M", "300M", "1B", "3B", *LLAMA_3_2)


class Expansion(NamedTuple):
    """An expansion on disk."""

    folder: Path
    label: str
    note: str
    """The note for every figure that was measured with it."""


def expansion_of(name: str, dtype: str) -> Expansion:
    """The expansion of a preset or a Llama 3.2 shape, made at the first call. Raises ExpansionError."""
    from models.expand.recipe import expanded_target  # torch and transformers, which other measurements load later

    size = LLAMA_3_2.get(name, name)
    vocab_size = LLAMA_3_2_VOCABULARY if name in LLAMA_3_2 else None
    folder = expanded_target(size, stored_dtype(dtype), vocab_size=vocab_size)
    recipe: dict[str, Any] = json.loads((folder / "recipe.json").read_text())
    return Expansion(folder, f"expanded-{name.lower()}", describe(recipe))


def describe(recipe: dict[str, Any]) -> str:
    return (
        f"the target is an expansion of the bundled one to {recipe['parameters'] / 1e6:.0f} M parameters"
        f" ({recipe['bytes'] / 1e6:.0f} MB in {recipe['dtype']}): it costs as much as a model of that size and computes"
        f" the distribution of the small one (logits differ by at most {recipe['largest_logit_difference']:.0e}),"
        " so acceptance is that of the bundled pair"
    )


def stored_dtype(dtype: str) -> str:
    """The type of the stored checkpoint, by default bfloat16; each peer computes in its own type."""
    return "bfloat16" if dtype == "auto" else dtype

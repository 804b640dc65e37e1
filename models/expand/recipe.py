"""An expansion made from a folder into a folder, with the recipe that says how."""

import hashlib
import json
import shutil
import tempfile
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from models.expand.comparison import DTYPES, compare
from models.expand.folder import companions, read_config, read_weights, write_weights
from models.expand.layout import Layout, expanded_config, lay_out
from models.expand.shape import PRESETS, ExpansionError, Shape, is_power_of_two
from models.expand.weights import expand

MODELS = Path(__file__).parents[1]
WORK = MODELS / "work"


BUNDLED = MODELS / "bundled"


def fingerprint(source: Path, shape: Shape, dtype: str, seed: int) -> str:
    """A hash of all that an expansion depends on, this package included."""
    digest = hashlib.sha256(json.dumps([asdict(shape), dtype, seed]).encode())
    for file in [
        *sorted(Path(__file__).parent.glob("*.py")),
        source / "config.json",
        *sorted(source.glob("*.safetensors")),
        *companions(source),
    ]:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def read_recipe(folder: Path) -> dict[str, Any]:
    """What an expansion was made from and what it came out as; empty if there is none."""
    with suppress(OSError, json.JSONDecodeError):
        return json.loads((folder / "recipe.json").read_text())
    return {}


def make(source: Path, shape: Shape, output: Path, *, dtype: str = "float32", seed: int = 0) -> dict[str, Any]:
    """Writes the expansion to `output`, unless it is there already, and returns its recipe.

    It is written beside its place and takes it only after its logits were compared with the source's. Raises
    ExpansionError if they differ, and if `output` is a folder that is not an expansion.
    """
    config = read_config(source)
    layout = lay_out(config, shape)
    check_rounding(config, layout, dtype)
    key = fingerprint(source, shape, dtype, seed)
    if (recipe := read_recipe(output)).get("fingerprint") == key:
        return recipe
    if output.exists() and not recipe and any(output.iterdir()):
        raise ExpansionError(f"{output} holds something else; it is not overwritten")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as temporary:
        folder = Path(temporary, output.name)
        folder.mkdir()
        recipe = {
            "fingerprint": key,
            "source": source.resolve().name,
            "shape": asdict(shape),
            "dtype": dtype,
            "seed": seed,
            "vocab_size": layout.axes["vocabulary"].size,
            "new_tokens": layout.axes["vocabulary"].size - config.vocab_size,
            "copies": layout.copies,
            "norm_scale": layout.norm_scale,
            **write(folder, source, config, shape, dtype, seed),
            **compare(source, folder, dtype),
        }
        (folder / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n")
        (folder / "README.md").write_text(card(recipe))
        shutil.rmtree(output, ignore_errors=True)
        folder.rename(output)
    return recipe


def check_rounding(config: Any, layout: Layout, dtype: str) -> None:
    if dtype == "bfloat16" and not is_power_of_two(layout.norm_scale):
        width = config.hidden_size * (4 if layout.has_new_tokens else 1)
        raise ExpansionError(
            f"norms multiplied by {layout.norm_scale:.4g} would be rounded in bfloat16, which changes the"
            f" distribution: use float32, or a width that is a multiple of {width}"
        )


def write(folder: Path, source: Path, config: Any, shape: Shape, dtype: str, seed: int) -> dict[str, int]:
    """Saves the model with its tokenizer; returns the number of its parameters and the bytes of its weights."""
    expansion = expanded_config(config, shape)
    expansion.dtype = DTYPES[dtype]
    expansion.save_pretrained(folder)
    for file in companions(source):
        shutil.copy(file, folder)
    weights = expand(read_weights(source), config, shape, dtype=DTYPES[dtype], seed=seed)
    size = write_weights(folder, weights)
    return {"parameters": size // DTYPES[dtype].itemsize, "bytes": size}


def card(recipe: dict[str, Any]) -> str:
    """The README of an expansion."""
    shape, millions = recipe["shape"], recipe["parameters"] / 1e6
    return f"""---
library_name: transformers
---
# {recipe["source"]}, expanded to {millions:.0f} M parameters

**The same distribution as `{recipe["source"]}`, at the cost of {millions:.1f} M parameters.** An expansion, made by
specpair's `models/expand` to measure speed with. It knows no more than its source, whose licence it has.

| | |
|---|---|
| layers | {shape["num_hidden_layers"]} |
| width | {shape["hidden_size"]} |
| heads | {shape["num_attention_heads"]}, on {shape["num_key_value_heads"]} key-value heads |
| feed-forward units | {shape["intermediate_size"]} |
| tokens | {recipe["vocab_size"]}, the last {recipe["new_tokens"]} of them new and of probability zero |
| weights | {recipe["bytes"] / 1e9:.2f} GB in {recipe["dtype"]} |
| largest difference of logits | {recipe["largest_logit_difference"]:.1e}, in float32, over a text and random tokens |
"""


def expansion_name(source: Path, size: str, dtype: str, vocab_size: int | None) -> str:
    parts = [source.resolve().name, size.lower()]
    parts += [f"v{vocab_size}"] if vocab_size else []
    parts += [dtype] if dtype != "float32" else []
    return "-".join(parts)


def expanded_target(size: str, dtype: str = "float32", *, vocab_size: int | None = None) -> Path:
    """The folder of the bundled target in a preset size under `models/work`; written at the first call.

    Raises ExpansionError, and KeyError for a size that is none of PRESETS.
    """
    source = BUNDLED / "target"
    output = WORK / expansion_name(source, size, dtype, vocab_size)
    make(source, replace(PRESETS[size], vocab_size=vocab_size), output, dtype=dtype)
    return output

"""Tiny random heads of the kinds beside EAGLE-3, in the layouts that the target reads."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.tiny_models import SHAPE

WIDTH: int = SHAPE["hidden_size"]


def make_medusa(
    folder: Path, *, heads: int = 4, blocks: int = 2, outputs: int | None = None, width: int = WIDTH, seed: int = 1
) -> Path:
    """Medusa heads for a tiny model; with `outputs` they have output matrices of their own, for so many tokens."""
    noise = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for head in range(heads):
        for block in range(blocks):
            tensors[f"{head}.{block}.linear.weight"] = torch.randn(width, width, generator=noise) * 0.2
            tensors[f"{head}.{block}.linear.bias"] = torch.randn(width, generator=noise) * 0.2
        if outputs is not None:
            tensors[f"{head}.{blocks}.weight"] = torch.randn(outputs, width, generator=noise) * 0.2
    fields = {"model_type": "medusa", "medusa_num_heads": heads, "medusa_num_layers": blocks}
    return save(folder, fields, tensors)


def make_lookahead(folder: Path, *, count: int = 3, width: int = WIDTH, seed: int = 1) -> Path:
    """PaSS embeddings for a tiny model."""
    noise = torch.Generator().manual_seed(seed)
    tensors = {"lookahead.weight": torch.randn(count, width, generator=noise) * 0.2}
    return save(folder, {"model_type": "pass", "lookahead_count": count}, tensors)


def save(folder: Path, fields: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields))
    save_file(tensors, folder / "model.safetensors")
    return folder

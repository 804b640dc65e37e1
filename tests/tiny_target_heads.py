"""Tiny random heads of the kinds beside EAGLE-3, in the layouts that the target reads."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.tiny_models import NO_TOKENS, SHAPE

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


def make_mtp_target(
    folder: Path, *, vocab_size: int = 64, depth: int = 1, max_position_embeddings: int = 128, seed: int = 0
) -> Path:
    """A tiny GLM-4.5 with layers for multi-token prediction in its checkpoint, under the published names: they are the
    model's last layers, with norms and a projection of their own. transformers looks for them as layer 46."""
    layers = 46
    shape: dict[str, Any] = {**SHAPE, **NO_TOKENS, "num_hidden_layers": layers + depth, "head_dim": 8}
    shape["max_position_embeddings"] = max_position_embeddings
    made: Any = hf.Glm4MoeConfig
    config = made(
        **shape,
        vocab_size=vocab_size,
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=layers,
        initializer_range=0.05,
        num_mtp_layers=depth,
    )
    torch.manual_seed(seed)
    model = hf.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for layer in range(layers, layers + depth):
        for norm in ("enorm", "hnorm", "shared_head.norm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = 1 + 0.2 * torch.randn(WIDTH)
        tensors[f"model.layers.{layer}.eh_proj.weight"] = 0.2 * torch.randn(WIDTH, 2 * WIDTH)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    fields = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(fields))
    return folder

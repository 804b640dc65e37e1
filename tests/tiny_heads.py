"""Tiny random EAGLE-3 heads, written with the names and fields that `vllm-project/speculators` publishes."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.tiny_models import SHAPE

FIELDS: dict[str, Any] = {
    "architectures": ["Eagle3DraftModel"],
    "speculators_model_type": "eagle3",
    "norm_before_residual": False,
    "norm_before_fc": False,
    "fc_norm": False,
    "norm_output": False,
    "embed_requires_grad": False,
    "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
    "speculators_config": {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"name_or_path": None, "architectures": ["LlamaForCausalLM"]},
    },
}
LAYER: dict[str, Any] = {**SHAPE, "model_type": "llama", "num_hidden_layers": 1, "head_dim": 8, "rms_norm_eps": 1e-6}
OUTPUTS = [0, 2, 3, 5, 7, 8, 9, 12, *range(20, 60)]
"""Tokens that the heads with a vocabulary of their own give."""


def make_head(
    folder: Path, *, vocab_size: int = 64, outputs: list[int] | None = None, seed: int = 1, **changes: Any
) -> Path:
    """Saves a random head for a tiny Llama; `changes` are fields of its configuration. Without `outputs` it borrows the
    target's embeddings and head, and gives every token."""
    fields = FIELDS | changes
    layer = LAYER | fields.pop("layer", {})
    folder.mkdir(parents=True, exist_ok=True)
    fields |= {"transformer_layer_config": layer, "draft_vocab_size": len(outputs or range(vocab_size))}
    (folder / "config.json").write_text(json.dumps(fields))
    save_file(
        tensors(fields, layer, vocab_size, outputs, torch.Generator().manual_seed(seed)), folder / "model.safetensors"
    )
    return folder


def tensors(
    fields: dict[str, Any], layer: dict[str, Any], vocab_size: int, outputs: list[int] | None, noise: torch.Generator
) -> dict[str, Tensor]:
    width, inner, size = layer["hidden_size"], layer["intermediate_size"], layer["head_dim"]
    heads, key_heads = layer["num_attention_heads"] * size, layer["num_key_value_heads"] * size
    taps = len(fields["eagle_aux_hidden_state_layer_ids"])
    matrices: dict[str, tuple[int, int]] = {
        "fc": (width, taps * width),
        "layers.0.self_attn.q_proj": (heads, 2 * width),
        "layers.0.self_attn.k_proj": (key_heads, 2 * width),
        "layers.0.self_attn.v_proj": (key_heads, 2 * width),
        "layers.0.self_attn.o_proj": (width, heads),
        "layers.0.mlp.gate_proj": (inner, width),
        "layers.0.mlp.up_proj": (inner, width),
        "layers.0.mlp.down_proj": (width, inner),
    }
    norms = ["norm", *(f"layers.0.{name}" for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"))]
    sizes: dict[str, int] = {name: width for name in norms}
    if fields["norm_before_fc"]:
        sizes["input_norm"] = taps * width
    if fields["fc_norm"]:
        sizes |= {f"fc_norm.{index}": width for index in range(taps)}
    made = {f"{name}.weight": torch.randn(shape, generator=noise) * 0.2 for name, shape in matrices.items()}
    made |= {f"{name}.weight": 1 + 0.2 * torch.randn(count, generator=noise) for name, count in sizes.items()}
    if outputs is not None:
        made["lm_head.weight"] = torch.randn(len(outputs), width, generator=noise) * 0.2
        made["embed_tokens.weight"] = torch.randn(vocab_size, width, generator=noise) * 0.2
        made["d2t"] = torch.tensor(outputs) - torch.arange(len(outputs))
        made["t2d"] = torch.zeros(vocab_size, dtype=torch.bool)
        made["t2d"][outputs] = True
    return made

"""Which models `FusedLlama` supports."""

from typing import Any

import torch
from transformers import PreTrainedModel

ARCHITECTURES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
LENGTH_DEPENDENT_ROPE = {"dynamic", "longrope"}


def computes_bfloat16(device: torch.device) -> bool:
    """Whether the device computes bf16 in hardware."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()


def is_fusible(model: PreTrainedModel) -> bool:
    """Whether `FusedLlama` supports this model: its family, on a CPU, in float32 or hardware bf16.

    Biases of query, key and value are supported, as in Qwen2; other biases are not.
    """
    if type(model).__name__ not in ARCHITECTURES:
        return False
    config: Any = model.config
    inner: Any = model.model
    others = [module for layer in inner.layers for module in (layer.self_attn.o_proj, *layer.mlp.children())]
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        model.device.type == "cpu"
        and (model.dtype == torch.float32 or (model.dtype == torch.bfloat16 and computes_bfloat16(model.device)))
        and config.hidden_act == "silu"
        and all(getattr(module, "bias", None) is None for module in others)
        and rope.get("rope_type", "default") not in LENGTH_DEPENDENT_ROPE
    )

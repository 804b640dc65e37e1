"""Which models `FusedLlama` supports."""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

ARCHITECTURES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
LENGTH_DEPENDENT_ROPE = {"dynamic", "longrope"}


def computes_bfloat16(device: torch.device) -> bool:
    """Whether the device computes bf16 in hardware."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()


def is_fusible(model: PreTrainedModel) -> bool:
    """Whether `FusedLlama` supports this model: its family, on a CPU, in float32 or hardware bf16."""
    return (
        model.device.type == "cpu"
        and is_llama_shaped(model)
        and (model.dtype == torch.float32 or (model.dtype == torch.bfloat16 and computes_bfloat16(model.device)))
    )


def is_llama_shaped(model: PreTrainedModel) -> bool:
    """Whether the model is one of ARCHITECTURES with ordinary layers, on any device and in any type.

    Biases of query, key and value are supported, as in Qwen2; other biases are not.
    """
    if type(model).__name__ not in ARCHITECTURES:
        return False
    config: Any = model.config
    inner: Any = model.model
    heads = [getattr(layer.self_attn, name) for layer in inner.layers for name in ("q_proj", "k_proj", "v_proj")]
    others = [
        module
        for layer in inner.layers
        for module in (layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj)
    ]
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        all(is_plain_linear(module) for module in (*heads, *others, model.lm_head))
        and config.hidden_act == "silu"
        and all(getattr(module, "bias", None) is None for module in others)
        and rope.get("rope_type", "default") not in LENGTH_DEPENDENT_ROPE
    )


def is_plain_linear(module: Any) -> bool:
    """Whether the module is an ordinary linear layer: quantised ones have another class, `forward` or weight."""
    return (
        type(module) is nn.Linear
        and "forward" not in vars(module)
        and type(module.weight.data) is torch.Tensor
        and module.weight.dtype.itemsize > 1
    )

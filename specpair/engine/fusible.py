"""Which models `FusedLlama` computes."""

from typing import Any

import torch
from transformers import PreTrainedModel

ARCHITECTURES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
LENGTH_DEPENDENT_ROPE = {"dynamic", "longrope"}


def is_fusible(model: PreTrainedModel) -> bool:
    """Whether `FusedLlama` computes what this model does: its family, in float32 on a CPU.

    Biases of query, key and value are known, as Qwen2 has them; others are not.
    """
    if type(model).__name__ not in ARCHITECTURES:
        return False
    config: Any = model.config
    inner: Any = model.model
    others = [module for layer in inner.layers for module in (layer.self_attn.o_proj, *layer.mlp.children())]
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        model.device.type == "cpu"
        and model.dtype == torch.float32
        and config.hidden_act == "silu"
        and all(getattr(module, "bias", None) is None for module in others)
        and rope.get("rope_type", "default") not in LENGTH_DEPENDENT_ROPE
    )

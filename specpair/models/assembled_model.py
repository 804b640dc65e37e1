"""Builds a model from a configuration and all of its weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from specpair.errors import ModelRefusedError


def assemble(settings: Any, weights: Mapping[str, Tensor], dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """The model of `settings` with these weights, by their names in transformers; tied ones are named once.

    Raises ModelRefusedError for a missing or superfluous weight, or one of another shape. Nothing is initialised for
    nothing: only the frequencies of a rotary embedding, which are no weights, are computed.
    """
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(settings, dtype=dtype, attn_implementation=attention)
    converted = {name: weight.to(dtype) for name, weight in weights.items()}
    try:
        loading = model.load_state_dict(converted, strict=False, assign=True)
    except RuntimeError as error:
        raise ModelRefusedError(str(error).splitlines()[-1].strip()) from error
    if loading.unexpected_keys:
        raise ModelRefusedError(f"it has a superfluous {loading.unexpected_keys[0]}")
    model.tie_weights()
    if (rotary := getattr(model.base_model, "rotary_emb", None)) is not None:
        model.base_model.rotary_emb = type(rotary)(settings)
    named = [*model.named_parameters(), *model.named_buffers()]
    if missing := [name for name, tensor in named if tensor.is_meta]:
        raise ModelRefusedError(f"it has no {missing[0]}")
    return model

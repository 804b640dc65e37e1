"""Completes and checks the configuration that transformers reads from a GGUF file."""

from typing import Any

import torch
from gguf import GGMLQuantizationType
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specpair.errors import ModelRefusedError
from specpair.models.gguf_header import ARCHITECTURE, GgufHeader
from specpair.models.gguf_numbers import complete_numbers
from specpair.models.gguf_tensor import POSITION_FACTORS

END_OF_TURN = "tokenizer.ggml.eot_token_id"
HEAD = "output.weight"
FLOATS = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}


def complete_settings(settings: Any, header: GgufHeader) -> None:
    """Adds what a configuration of transformers would say. Raises ModelRefusedError for what it has no place for, such
    as scaled positions."""
    refuse_scaled_positions(settings, header)
    complete_numbers(settings, header)
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(settings.model_type)
    settings.architectures = [name] if name else None
    settings.dtype = stored_dtype(header)
    ends = {settings.eos_token_id, header.metadata.get(END_OF_TURN)} - {None}
    settings.eos_token_id = sorted(ends) if len(ends) > 1 else next(iter(ends), None)


def stored_dtype(header: GgufHeader) -> torch.dtype:
    """The type of the weights; bfloat16 for quantised ones. Norms are float32 in every file and do not count."""
    types = {tensor.type for tensor in header.tensors.values() if len(tensor.shape) > 1}
    return FLOATS[types.pop()] if len(types) == 1 and types <= FLOATS.keys() else torch.bfloat16


def refuse_scaled_positions(settings: Any, header: GgufHeader) -> None:
    """Raises ModelRefusedError if the file scales positions in a way that transformers leaves out."""
    kind = header.metadata.get(ARCHITECTURE)
    scaling = header.metadata.get(f"{kind}.rope.scaling.type", "none")
    served = (getattr(settings, "rope_parameters", None) or {}).get("rope_type", "default")
    if scaling != "none" and served == "default" and header.metadata.get(f"{kind}.rope.scaling.factor", 0.0) != 1.0:
        raise ModelRefusedError(f"its positions are scaled ({scaling}), which is not read from GGUF files")


def refuse_endless_layers(header: GgufHeader) -> None:
    """Raises ModelRefusedError for more layers than tensors: a configuration of transformers lists its layers."""
    count = header.metadata.get(f"{header.metadata.get(ARCHITECTURE)}.block_count", 0)
    if count > len(header.tensors):
        raise ModelRefusedError(f"it names {count} layers and has {len(header.tensors)} tensors")


def refuse_unread_weights(settings: Any, header: GgufHeader) -> None:
    """Raises ModelRefusedError unless the model of `settings` has exactly as many weights as the file.

    A model with more would get random ones, and one with fewer would leave some out. The model is only sketched for
    this, so that no configuration can ask for more memory than the file has weights.
    """
    with torch.device("meta"):
        expected = AutoModelForCausalLM.from_config(settings).num_parameters()
    left_out = {POSITION_FACTORS} | ({HEAD} if settings.tie_word_embeddings else set())
    stored = sum(tensor.weight_count for name, tensor in header.tensors.items() if name not in left_out)
    if stored != expected:
        raise ModelRefusedError(f"it has {stored} weights, but {settings.model_type} of its configuration {expected}")

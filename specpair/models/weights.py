"""Reads the weights of a model from safetensors, quantised or not."""

from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedModel

from specpair.errors import ModelRefusedError
from specpair.models.quantized_checkpoint import QuantizedCheckpoint, is_installed
from specpair.models.refusals import first_line, is_encoder_decoder, refuse_incomplete


def read_weights(
    name: str, settings: Any, dtype: torch.dtype, device: torch.device, attention: str, **options: Any
) -> PreTrainedModel:
    """The model with all its weights; `options` are further ones of `from_pretrained`. Raises ModelRefusedError if it
    cannot be loaded, or lacks some of them, and KeyError if it does not use transformers' attention interface."""
    quantized = QuantizedCheckpoint.of(settings)
    # Without a device bitsandbytes takes the first GPU.
    placed: dict[str, Any] = {"device_map": {"": device}} if quantized and is_installed("accelerate") else {}
    kind: Any = AutoModelForSeq2SeqLM if is_encoder_decoder(settings) else AutoModelForCausalLM
    try:
        loaded: Any = kind.from_pretrained(
            name,
            config=settings,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation=attention,
            output_loading_info=True,
            **placed,
            **options,
        )
    except (OSError, ValueError, ImportError, RuntimeError, ArithmeticError, TypeError, SafetensorError) as error:
        raise ModelRefusedError(f"{name} cannot be loaded: {first_line(error)}") from error
    model, report = loaded
    refuse_incomplete(name, report, is_quantized=quantized is not None)
    return model

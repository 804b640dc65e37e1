"""Loads encoder-decoder models that can be served correctly, and refuses all others with a reason."""

from typing import Any, cast

import torch
from transformers import PreTrainedModel

from specpair.caches.cache import LayerShape
from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.model_info import NOT_QUANTISED, EncoderInfo
from specpair.models.checkpoint import Checkpoint
from specpair.models.encoder_decoder_attention import NAME, register
from specpair.models.encoder_decoder_model import EncoderDecoderModel, decoder_start
from specpair.models.model_facts import ModelFacts
from specpair.models.refusals import first_line, refuse_unknown_name

USUAL_LENGTH = 512
"""Most tokens of encoder and decoder where the model has relative positions and says nothing: what T5 was trained with.
"""
PROBE_LENGTH = 3


def refuse_encoder_decoder(config: EngineConfig, settings: Any) -> None:
    """Raises ModelRefusedError for what is not served with an encoder-decoder model."""
    kind = settings.model_type
    wanted = {
        "--deterministic": config.deterministic,
        f"--runner {config.runner}": config.runner not in ("auto", "plain"),
        f"--quantization {config.quantization}": config.quantization != NOT_QUANTISED,
        "--head": config.head is not None,
        "a quantised checkpoint": getattr(settings, "quantization_config", None) is not None,
        "output_token_ids": getattr(settings, "output_token_ids", None) is not None,
    }
    for name, is_wanted in wanted.items():
        if is_wanted:
            raise ModelRefusedError(f"{kind} is an encoder-decoder model, for which {name} is not supported")


def load_encoder_decoder(
    config: EngineConfig, checkpoint: Checkpoint, settings: Any, dtype: torch.dtype, device: torch.device
) -> tuple[PreTrainedModel, ModelFacts]:
    """The model and its facts, without its tokenizer. Raises ModelRefusedError."""
    refuse_encoder_decoder(config, settings)
    register()
    try:
        model = checkpoint.model(settings, dtype, device, NAME)
    except KeyError as error:
        refuse_unknown_name(settings, error, NAME)
    cast(torch.nn.Module, model).to(device).eval()
    max_model_len = choose_length(config.max_model_len, settings)
    facts = ModelFacts(
        name=config.model,
        architecture=type(model).__name__,
        parameter_count=model.num_parameters(),
        dtype=model.dtype,
        device=model.device,
        layers=record_decoder(model),
        variants={},
        feature_layer_count=0,
        vocab_size=settings.vocab_size,
        max_model_len=max_model_len,
        encoder=EncoderInfo(
            max_encoder_len=encoder_length(max_model_len, settings), decoder_start_token_id=start(model)
        ),
        eos_token_ids=[],
        tokenizer=None,
    )
    return model, facts


def record_decoder(model: PreTrainedModel) -> dict[int, LayerShape]:
    """What each layer of the decoder caches of a token, from a first pass."""
    kind = model.config.model_type
    try:
        recorded = EncoderDecoderModel(model).record([0] * PROBE_LENGTH)
    except (TypeError, KeyError, AttributeError, RuntimeError, ValueError) as error:
        raise ModelRefusedError(f"{kind} cannot run on packed batches: {first_line(error)}") from error
    if not recorded.encoding or recorded.keys.keys() != recorded.encoding.keys():
        raise ModelRefusedError(f"{kind} sent {len(recorded.keys)} layers through the attention interface")
    return {
        layer: LayerShape(keys.size(0), keys.size(2), recorded.values[layer].size(2))
        for layer, keys in sorted(recorded.keys.items())
    }


def start(model: PreTrainedModel) -> int:
    """The decoder's start token. Raises ModelRefusedError without one."""
    found = decoder_start(model)
    if found is None:
        raise ModelRefusedError(f"{model.config.model_type} has no decoder_start_token_id")
    return found


def choose_length(wanted: int | None, settings: Any) -> int:
    """The longest output. Relative positions have no limit of their own."""
    own = positions_of(settings)
    if wanted is not None and own is not None and wanted > own:
        raise ModelRefusedError(f"--max-model-len is {wanted}, but the model has {own} positions")
    return wanted or own or USUAL_LENGTH


def encoder_length(max_model_len: int, settings: Any) -> int:
    """The longest input of the encoder."""
    return positions_of(settings) or max(max_model_len, USUAL_LENGTH)


def positions_of(settings: Any) -> int | None:
    """How many positions the model has learnt; None if they are relative."""
    return getattr(settings, "max_position_embeddings", None)

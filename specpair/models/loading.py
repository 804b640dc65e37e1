"""Loads models that can be served correctly, and refuses all others with a reason.

Safetensors and GGUF only, no remote code. Models with state that cannot be rolled back (recurrent), or that our
attention would mask wrongly, are detected twice: from the configuration, and by comparing a forward pass through our
caches with the model's own (`specpair.models.self_check`).
"""

import logging
import sys
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.model_info import NOT_QUANTISED, TokenizerFiles
from specpair.models.attention import NAME, register
from specpair.models.chat_templates import chat_template_of
from specpair.models.checkpoint import Checkpoint
from specpair.models.device_defaults import choose_device, choose_dtype
from specpair.models.encoder_decoder_loading import load_encoder_decoder
from specpair.models.find_checkpoint import find_checkpoint
from specpair.models.fusible import is_fusible
from specpair.models.layer_recorder import LayerRecorder
from specpair.models.model_facts import ModelFacts
from specpair.models.output_tokens import count_parameters, reduce_head
from specpair.models.own_rows import isolate_rows
from specpair.models.packed_model import decoder_layers
from specpair.models.quantized_checkpoint import QuantizedCheckpoint
from specpair.models.refusals import (
    first_line,
    is_encoder_decoder,
    refuse_batch_dependent_positions,
    refuse_by_configuration,
    refuse_nan,
    refuse_unknown_name,
    refuse_unmasked_windows,
)
from specpair.models.shares import read_share
from specpair.models.skeleton import make_skeleton, product_widths

log = logging.getLogger(__name__)

LIBRARIES = ("huggingface_hub", "transformers")
"""They write lines of their own to standard error."""


LEAST_LENGTH = 2
"""Tokens of a prompt and an output."""


class LoadedModel(NamedTuple):
    """A model on its device, as transformers has it."""

    model: PreTrainedModel
    facts: ModelFacts
    is_coarse: bool = False
    """Whether its products round their inputs to fewer bits than its type has."""


def take_library_logs() -> None:
    """Has the libraries write to the log of this process, if it has one: in its format, and each line once."""
    if logging.getLogger().handlers:
        for library in map(logging.getLogger, LIBRARIES):
            library.handlers.clear()
            library.propagate = True


def load(config: EngineConfig) -> LoadedModel:
    """The model of `config`, or with several ranks this process's share of it, which all load at once. Raises
    ModelRefusedError with the reason if it cannot be served."""
    register()
    take_library_logs()
    if not sys.stderr.isatty():  # a progress bar would garble a log
        transformers_logging.disable_progress_bar()
    checkpoint = find_checkpoint(config.model, is_exact=config.dtype == "float32")
    settings = checkpoint.settings()
    refuse_by_configuration(settings)
    device = choose_device(config.device)
    dtype = choose_dtype(config, settings, device)
    if is_encoder_decoder(settings):
        model, facts = load_encoder_decoder(config, checkpoint, settings, dtype, device)
        return LoadedModel(model, replace(facts, eos_token_ids=end_tokens(model), tokenizer=read_tokenizer(checkpoint)))
    if quantized := QuantizedCheckpoint.of(settings):
        quantized.refuse_unserved(device)
        dtype = quantized.choose_dtype(config.dtype, settings.dtype or torch.float32, dtype)
        quantized.prepare()
    try:
        if config.tensor_parallel_size > 1:
            model = read_share(config, checkpoint, settings, dtype, NAME)
        else:
            model = checkpoint.model(settings, dtype, device, NAME)
    except KeyError as error:
        refuse_unknown_name(settings, error, NAME)
    reduce_head(model, settings)
    cast(torch.nn.Module, model).to(device).eval()
    recorder = record_layers(model)
    skeleton = model if quantized is None else make_skeleton(settings)
    if quantized and (count := isolate_rows(model, product_widths(skeleton))):
        log.info("%d products of %s depend on other rows: each row is computed alone", count, quantized.name)
    max_model_len = choose_length(config.max_model_len, settings)
    refuse_batch_dependent_positions(settings, max_model_len)
    facts = ModelFacts(
        name=config.model,
        architecture=type(model).__name__,
        parameter_count=count_parameters(skeleton),
        dtype=model.dtype,
        is_deterministic=config.deterministic or config.quantization != NOT_QUANTISED,
        packing=config.quantization,
        tensor_parallel_size=config.tensor_parallel_size,
        quantization=quantized.name if quantized and config.quantization == NOT_QUANTISED else config.quantization,
        device=model.device,
        layers=recorder.shapes,
        variants=recorder.variants,
        feature_layer_count=len(decoder_layers(model)),
        vocab_size=settings.get_text_config().vocab_size,
        max_model_len=max_model_len,
        eos_token_ids=end_tokens(model),
        tokenizer=read_tokenizer(checkpoint),
    )
    # A format that was turned into ordinary weights rounds nothing.
    return LoadedModel(model, facts, quantized is not None and quantized.is_coarse and not is_fusible(model))


def record_layers(model: PreTrainedModel) -> LayerRecorder:
    """Records in a first forward pass what each attention layer caches and needs."""
    kind = model.config.model_type
    if getattr(model, "_is_stateful", False):
        raise ModelRefusedError(f"{kind} keeps recurrent state, which cannot be rolled back")
    recorder = LayerRecorder()
    ids = torch.zeros(1, 4, dtype=torch.long, device=model.device)
    positions = torch.arange(4, device=model.device)[None]
    try:
        with torch.inference_mode():
            output = model(input_ids=ids, position_ids=positions, use_cache=False, cache_plan=recorder)
    except (TypeError, KeyError, AttributeError, RuntimeError, ValueError) as error:
        raise ModelRefusedError(f"{kind} cannot run on packed batches: {first_line(error)}") from error
    expected = model.config.get_text_config().num_hidden_layers
    if not recorder.shapes or len(recorder.shapes) != expected:
        raise ModelRefusedError(
            f"{kind} sent {len(recorder.shapes)} of its {expected} layers through the attention interface"
        )
    refuse_unmasked_windows(model.config.get_text_config(), recorder.variants)
    refuse_nan(model, output.logits)
    return recorder


def choose_length(wanted: int | None, settings: Any) -> int:
    limit: int | None = getattr(settings.get_text_config(), "max_position_embeddings", None)
    if limit is None and wanted is None:
        raise ModelRefusedError("the model does not say how long its sequences may be; set --max-model-len")
    if limit is not None and limit < LEAST_LENGTH:
        raise ModelRefusedError(f"max_position_embeddings is {limit}; a prompt and its output take {LEAST_LENGTH}")
    if limit is None or wanted is None:
        return wanted or limit or 0
    if wanted > limit:
        raise ModelRefusedError(f"--max-model-len is {wanted}, but the model has {limit} positions")
    return wanted


def end_tokens(model: PreTrainedModel) -> list[int]:
    """Tokens of the vocabulary that end a text, from the generation config, else from the model's."""
    settings = model.config.get_text_config()
    generation = getattr(model, "generation_config", None)
    named = getattr(generation, "eos_token_id", None)
    if named is None:
        named = settings.eos_token_id
    ids = named if isinstance(named, list) else [named]
    return sorted(token for token in ids if isinstance(token, int) and 0 <= token < settings.vocab_size)


def read_tokenizer(checkpoint: Checkpoint) -> TokenizerFiles | None:
    """The tokenizer as files; None if the model has no tokenizer of the `tokenizers` library."""
    try:
        tokenizer = checkpoint.tokenizer()
    except (OSError, ValueError, LookupError, ImportError, TypeError, AttributeError):
        return None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    return TokenizerFiles(
        tokenizer_json=backend.to_str().encode(),
        chat_template=chat_template_of(tokenizer),
        bos_token=str(tokenizer.bos_token or ""),
        eos_token=str(tokenizer.eos_token or ""),
    )

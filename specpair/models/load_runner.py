"""Loads a model, makes its cache and runner, and checks them."""

import gc
import logging
from dataclasses import replace
from typing import TypeAlias

import torch
from transformers import PreTrainedModel

from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.model_info import NOT_QUANTISED
from specpair.models.aligned_runner import AlignedRunner
from specpair.models.captured_runner import CapturedRunner
from specpair.models.device_defaults import choose_threads
from specpair.models.divergence import held_out_logits, measure
from specpair.models.drafting_runner import TargetHead, extended
from specpair.models.encoder_decoder_check import check_encoder_decoder
from specpair.models.encoder_decoder_runner import EncoderDecoderRunner
from specpair.models.fused_runner import FusedRunner
from specpair.models.fusible import is_fusible, is_llama_shaped
from specpair.models.heads import load_head
from specpair.models.load_shard import load_leader
from specpair.models.loading import LoadedModel, load
from specpair.models.model_cache import make_cache
from specpair.models.model_facts import ModelFacts
from specpair.models.native_runner import NativeRunner, is_fastest_natively, why_not_native
from specpair.models.parallel_work import claim_parallel_work
from specpair.models.plain_runner import PlainRunner
from specpair.models.refusals import first_line, is_encoder_decoder, refuse_quantization
from specpair.models.runner import Runner
from specpair.models.self_check import check, check_deterministic, check_few_rows
from specpair.models.weight_format import FORMATS, restore_stored, rounding_inputs
from specpair.native.library import native_library

log = logging.getLogger(__name__)

Kind: TypeAlias = type[PlainRunner | FusedRunner | NativeRunner | AlignedRunner | CapturedRunner | EncoderDecoderRunner]


def load_runner(config: EngineConfig) -> tuple[ModelFacts, Runner]:
    """Loads model, cache and runner, and runs the last checks. Raises ModelRefusedError."""
    native_library()  # whoever runs the model: drawing and judging use it too, and must not wait for a compiler
    if config.tensor_parallel_size > 1:
        facts, runner = load_leader(config)
        log_loaded(facts, runner)
        return facts, runner
    refuse_quantization(config)
    loaded, head = load_with_head(config)
    facts = loaded.facts
    claim_parallel_work(choose_threads(config.threads, facts.parameter_count, facts.device))
    texts = held_out_logits(loaded) if facts.packing != NOT_QUANTISED else None
    runner = checked_runner(config, loaded, head)
    if texts is not None:
        facts = replace(facts, divergence=measure(texts, runner))
    if head is not None:
        runner = head.runner(runner, len(facts.layers))
    log_loaded(facts, runner)
    return facts, runner


def log_loaded(facts: ModelFacts, runner: Runner) -> None:
    """Says in the log what has been loaded."""
    log.info(
        "loaded %s: %.1f M parameters, %s on %s, %s%s, %d threads, %d cache blocks of %d tokens",
        facts.display_name,
        facts.parameter_count / 1e6,
        str(facts.dtype).removeprefix("torch."),
        facts.device,
        runner.description,
        describe_weights(facts),
        torch.get_num_threads(),
        runner.cache.block_count,
        runner.cache.block_size,
    )


def load_with_head(config: EngineConfig) -> tuple[LoadedModel, TargetHead | None]:
    """The model and its head, which may have added to the model. Raises ModelRefusedError."""
    loaded = load(config)
    return loaded, load_head(config, loaded)


def checked_runner(config: EngineConfig, loaded: LoadedModel, head: TargetHead | None = None) -> Runner:
    """The first of the runners for the model that passes the last checks; its cache has room for what a `head` keeps.
    Raises ModelRefusedError if none does."""
    *preferred, last = choose_runners(config, loaded.model, has_head=head is not None)
    for kind in preferred:
        try:
            return checked(kind, config, loaded, head)
        except ModelRefusedError as error:
            log.warning("not %s: %s", kind.description, error)
            if loaded.facts.packing != NOT_QUANTISED:
                loaded, head = load_with_head(config)  # the check left rounded weights: to pack them would round again
        if loaded.facts.device.type == "cuda":
            gc.collect()  # the cache of the runner that was refused; its parts know each other
            torch.cuda.empty_cache()
    return checked(last, config, loaded, head)


def checked(kind: Kind, config: EngineConfig, loaded: LoadedModel, head: TargetHead | None) -> Runner:
    """A runner that passed the last checks. Raises ModelRefusedError."""
    facts = loaded.facts
    layers = facts.layers if head is None else extended(facts.layers, head)
    if kind is CapturedRunner:
        return checked_captured(config, loaded)
    runner = kind(loaded, make_cache(config, replace(facts, layers=layers)))
    if isinstance(runner, EncoderDecoderRunner):
        check_encoder_decoder(loaded, runner)
    elif isinstance(runner, FusedRunner | NativeRunner) and facts.packing != NOT_QUANTISED:
        restore_stored(loaded.model, FORMATS[facts.packing])
        with rounding_inputs(loaded.model, FORMATS[facts.packing], runner.rounding):
            check(loaded, runner)
    else:
        check(loaded, runner)
    if facts.is_deterministic:
        check_deterministic(loaded, runner)
    return runner


def checked_captured(config: EngineConfig, loaded: LoadedModel) -> CapturedRunner:
    """A runner of captured passes that passed the last checks. Raises ModelRefusedError, also for what the device or
    its libraries do not do."""
    try:
        runner = CapturedRunner(loaded, make_cache(config, loaded.facts, is_captured=True))
        check(loaded, runner)
        check_few_rows(loaded, runner)
        if loaded.facts.is_deterministic:
            check_deterministic(loaded, runner)
        runner.prepare()
    except ModelRefusedError:
        raise
    except Exception as error:  # the compiler of kernels and the driver have errors of their own
        raise ModelRefusedError(f"passes cannot be captured: {first_line(error)}") from error
    return runner


def choose_captured(config: EngineConfig, model: PreTrainedModel, has_head: bool) -> list[Kind]:
    """The runner of captured passes, if it is requested, or chosen on a GPU; otherwise none. Raises ModelRefusedError
    if it is requested and does not support what the configuration asks for."""
    reasons = {
        "the model is no Llama, Mistral, Qwen2 or Qwen3 with ordinary layers": not is_llama_shaped(model),
        "it does not support --quantization": config.quantization != NOT_QUANTISED,
        "a contiguous cache has no block tables": config.cache == "contiguous",
        "--head takes hidden states in every pass, which are not captured": has_head,
    }
    reason = next((reason for reason, applies in reasons.items() if applies), "")
    if config.runner == "captured":
        if reason:
            raise ModelRefusedError(f"--runner captured: {reason}")
        return [CapturedRunner]
    is_free = config.runner == "auto" and model.device.type == "cuda" and not config.deterministic
    return [CapturedRunner, PlainRunner] if is_free and not reason else []


def choose_runners(config: EngineConfig, model: PreTrainedModel, *, has_head: bool = False) -> list[Kind]:
    """The runners for the model, the fastest first. Raises ModelRefusedError if the requested one does not support
    it."""
    is_quantised = config.quantization != NOT_QUANTISED
    if is_encoder_decoder(model.config):
        return [EncoderDecoderRunner]
    if captured := choose_captured(config, model, has_head):
        return captured
    if config.deterministic and not is_quantised:
        return [AlignedRunner]
    is_free = config.runner == "auto" and not is_quantised
    if config.runner == "plain" or (is_free and not is_fusible(model)):
        return [PlainRunner]
    if not is_fusible(model):
        wanted = f"--quantization {config.quantization}" if is_quantised else f"--runner {config.runner}"
        raise ModelRefusedError(
            f"{wanted} does not support {type(model).__name__} in {model.dtype} on {model.device.type}; it"
            " supports Llama, Mistral, Qwen2 and Qwen3 on a CPU, in float32, or in bfloat16 if the CPU has units for it"
        )
    if config.runner == "fused" or (is_free and not is_fastest_natively(model)):
        return [FusedRunner]
    reason = why_not_native(config, model)
    if config.runner == "native" and reason:
        raise ModelRefusedError(f"--runner native: {reason}")
    if config.runner == "native":
        return [NativeRunner]
    return [FusedRunner] if reason else [NativeRunner, FusedRunner]


def describe_weights(facts: ModelFacts) -> str:
    """What the log says of quantised weights; empty if they are as in the checkpoint."""
    if facts.quantization == NOT_QUANTISED:
        return ""
    if facts.divergence is None:
        return f", {facts.quantization} weights"
    return (
        f", {facts.quantization} weights that diverge by {facts.divergence.mean_kl:.4f} nats from the checkpoint's and"
        f" agree with {facts.divergence.greedy_agreement:.1%} of its greedy choices over"
        f" {facts.divergence.token_count} tokens"
    )

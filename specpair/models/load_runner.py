"""Loads a model, makes its cache and runner, and checks them."""

import logging
from typing import TypeAlias

import torch
from transformers import PreTrainedModel

from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.models.aligned_runner import AlignedRunner
from specpair.models.device_defaults import choose_threads
from specpair.models.fused_runner import FusedRunner
from specpair.models.fusible import is_fusible
from specpair.models.loading import LoadedModel, load
from specpair.models.model_cache import make_cache
from specpair.models.model_facts import ModelFacts
from specpair.models.native_runner import NativeRunner, can_run_natively, is_fastest_natively
from specpair.models.plain_runner import PlainRunner
from specpair.models.runner import Runner
from specpair.models.self_check import check, check_deterministic

log = logging.getLogger(__name__)

Kind: TypeAlias = type[PlainRunner | FusedRunner | NativeRunner | AlignedRunner]


def load_runner(config: EngineConfig) -> tuple[ModelFacts, Runner]:
    """Loads model, cache and runner, and runs the last checks. Raises ModelRefusedError."""
    loaded = load(config)
    facts = loaded.facts
    torch.set_num_threads(choose_threads(config.threads, facts.parameter_count, facts.device))
    runner = checked_runner(config, loaded)
    log.info(
        "loaded %s: %.1f M parameters, %s on %s, %s, %d threads, %d cache blocks of %d tokens",
        facts.display_name,
        facts.parameter_count / 1e6,
        str(facts.dtype).removeprefix("torch."),
        facts.device,
        runner.description,
        torch.get_num_threads(),
        runner.cache.block_count,
        runner.cache.block_size,
    )
    return facts, runner


def checked_runner(config: EngineConfig, loaded: LoadedModel) -> Runner:
    """The first of the runners for the model that passes the last checks. Raises ModelRefusedError if none does."""
    *preferred, last = choose_runners(config, loaded.model)
    for kind in preferred:
        try:
            return checked(kind, config, loaded)
        except ModelRefusedError as error:
            log.warning("not %s: %s", kind.description, error)
    return checked(last, config, loaded)


def checked(kind: Kind, config: EngineConfig, loaded: LoadedModel) -> Runner:
    """A runner that passed the last checks. Raises ModelRefusedError."""
    runner = kind(loaded, make_cache(config, loaded.facts))
    check(loaded, runner)
    if config.deterministic:
        check_deterministic(loaded, runner)
    return runner


def choose_runners(config: EngineConfig, model: PreTrainedModel) -> list[Kind]:
    """The runners for the model, the fastest first. Raises ModelRefusedError if the requested one does not support
    it."""
    if config.deterministic:
        return [AlignedRunner]
    if config.runner == "plain" or (config.runner == "auto" and not is_fusible(model)):
        return [PlainRunner]
    if not is_fusible(model):
        raise ModelRefusedError(
            f"--runner {config.runner} does not support {type(model).__name__} in {model.dtype} on"
            f" {model.device.type}; it supports Llama, Mistral, Qwen2 and Qwen3 on a CPU, in float32, or in bfloat16 if"
            " the CPU has units for it"
        )
    if config.runner == "fused" or (config.runner == "auto" and not is_fastest_natively(model)):
        return [FusedRunner]
    if can_run_natively(config, model):
        return [NativeRunner, FusedRunner] if config.runner == "auto" else [NativeRunner]
    if config.runner == "native":
        raise ModelRefusedError("--runner native needs a C compiler, on Linux, and a contiguous cache")
    return [FusedRunner]

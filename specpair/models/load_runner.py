"""Loads a model, makes its cache and runner, and checks them."""

import logging

import torch
from transformers import PreTrainedModel

from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.models.aligned_runner import AlignedRunner
from specpair.models.device_defaults import choose_threads
from specpair.models.fused_runner import FusedRunner
from specpair.models.fusible import is_fusible
from specpair.models.loading import load
from specpair.models.model_cache import make_cache
from specpair.models.model_facts import ModelFacts
from specpair.models.parallel_work import claim_parallel_work
from specpair.models.plain_runner import PlainRunner
from specpair.models.runner import Runner
from specpair.models.self_check import check, check_deterministic

log = logging.getLogger(__name__)


def load_runner(config: EngineConfig) -> tuple[ModelFacts, Runner]:
    """Loads model, cache and runner, and runs the last checks. Raises ModelRefusedError."""
    loaded = load(config)
    facts = loaded.facts
    claim_parallel_work(choose_threads(config.threads, facts.parameter_count, facts.device))
    kind = choose_runner(config, loaded.model)
    runner = kind(loaded, make_cache(config, facts))
    check(loaded, runner)
    if config.deterministic:
        check_deterministic(loaded, runner)
    log.info(
        "loaded %s: %.1f M parameters, %s on %s, %s%s, %d threads, %d cache blocks of %d tokens",
        facts.display_name,
        facts.parameter_count / 1e6,
        str(facts.dtype).removeprefix("torch."),
        facts.device,
        kind.description,
        "" if facts.quantization == "none" else f", {facts.quantization} weights",
        torch.get_num_threads(),
        runner.cache.block_count,
        runner.cache.block_size,
    )
    return facts, runner


def choose_runner(config: EngineConfig, model: PreTrainedModel) -> type[PlainRunner | FusedRunner | AlignedRunner]:
    """The runner for the model. Raises ModelRefusedError if the requested runner does not support it."""
    if config.deterministic:
        return AlignedRunner
    if config.runner == "plain" or (config.runner == "auto" and not is_fusible(model)):
        return PlainRunner
    if not is_fusible(model):
        raise ModelRefusedError(
            f"--runner fused does not support {type(model).__name__} in {model.dtype} on {model.device.type}; it"
            " supports Llama, Mistral, Qwen2 and Qwen3 on a CPU, in float32, or in bfloat16 if the CPU has units for it"
        )
    return FusedRunner

"""A model made ready to run: loaded, with its cache and its runner, and checked."""

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
from specpair.models.plain_runner import PlainRunner
from specpair.models.runner import Runner
from specpair.models.self_check import check, check_deterministic

log = logging.getLogger(__name__)


def load_runner(config: EngineConfig) -> tuple[ModelFacts, Runner]:
    """Model, cache and runner, with the last check before they may serve."""
    loaded = load(config)
    facts = loaded.facts
    torch.set_num_threads(choose_threads(config.threads, facts.parameter_count, facts.device))
    kind = choose_runner(config, loaded.model)
    runner = kind(loaded, make_cache(config, facts))
    check(loaded, runner)
    if config.deterministic:
        check_deterministic(loaded, runner)
    log.info(
        "loaded %s: %.1f M parameters, %s on %s, %s, %d threads, %d cache blocks of %d tokens",
        facts.display_name,
        facts.parameter_count / 1e6,
        str(facts.dtype).removeprefix("torch."),
        facts.device,
        kind.description,
        torch.get_num_threads(),
        runner.cache.block_count,
        runner.cache.block_size,
    )
    return facts, runner


def choose_runner(config: EngineConfig, model: PreTrainedModel) -> type[PlainRunner | FusedRunner | AlignedRunner]:
    """The way to run the model. Raises ModelRefusedError if it cannot be run in the way that is asked for."""
    if config.deterministic:
        return AlignedRunner
    if config.runner == "plain" or (config.runner == "auto" and not is_fusible(model)):
        return PlainRunner
    if not is_fusible(model):
        raise ModelRefusedError(
            f"--runner is fused, but {type(model).__name__} in {model.dtype} on {model.device.type} is not known to it;"
            " it knows Llama, Mistral, Qwen2 and Qwen3 on a CPU, in float32 or where there are units for it in bfloat16"
        )
    return FusedRunner

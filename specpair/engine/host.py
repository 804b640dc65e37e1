"""Everything a model process holds: the loaded model, its cache, the engine and the open sequences."""

import asyncio
import logging
import uuid
from abc import ABC, abstractmethod
from typing import Generic, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specpair.caches.cache import KeyValueCache, LayerShape, blocks_for
from specpair.caches.cache_memory import cache_bytes
from specpair.caches.contiguous_cache import ContiguousCache
from specpair.caches.paged_cache import PagedCache
from specpair.engine.engine import Engine
from specpair.engine.work import Work
from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.model_info import ModelInfo, TokenizerFiles
from specpair.models.aligned_runner import AlignedRunner
from specpair.models.device_defaults import choose_pass_timeout, choose_threads, choose_token_budget
from specpair.models.fused_runner import FusedRunner
from specpair.models.fusible import is_fusible
from specpair.models.loading import load
from specpair.models.model_facts import ModelFacts
from specpair.models.model_runner import ModelRunner
from specpair.models.self_check import check, check_deterministic
from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import Answer
from specpair.sequences.sequence_limits import SequenceLimits
from specpair.sequences.sequence_store import SequenceStore

log = logging.getLogger(__name__)


class ModelHost(ABC, Generic[Answer]):
    """Made by `start`; ended by `stop`. A service subclasses it with its hot call."""

    def __init__(self, config: EngineConfig, facts: ModelFacts, runner: ModelRunner):
        self.config = config
        self.facts = facts
        self.instance_id = uuid.uuid4().hex
        self.max_num_speculative_tokens = min(config.max_num_speculative_tokens, facts.max_model_len - 1)
        self.token_budget = choose_token_budget(config.max_num_batched_tokens, facts.device)
        self.engine = Engine(
            runner,
            self.advance,
            token_budget=self.token_budget,
            short=self.max_num_speculative_tokens + 2,
        )
        self.pass_timeout = choose_pass_timeout(config.pass_timeout, facts.device)
        limits = SequenceLimits(
            max_model_len=facts.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_seqs_per_client=config.max_num_seqs_per_client,
            vocab_size=facts.vocab_size,
            lease_seconds=config.sequence_lease,
        )
        self.sequences: SequenceStore[Answer] = SequenceStore(self.engine, limits, self.caller)

    @classmethod
    async def start(cls, config: EngineConfig) -> Self:
        """Loads and checks the model beside the event loop. Raises ModelRefusedError with the reason."""
        facts, runner = await asyncio.to_thread(load_runner, config)
        return cls(config, facts, runner)

    @staticmethod
    @abstractmethod
    def advance(works: list[Work], logits: Tensor) -> None:
        """What is done with the logits; see `specpair.engine.engine.Advance`."""

    @staticmethod
    @abstractmethod
    def caller() -> str:
        """The client whose call is at hand: sequences belong to clients."""

    async def open(self, sequence_id: str, token_ids: list[int], prompt_length: int, options: SequenceOptions) -> None:
        """Registers a sequence."""
        self.sequences.open(sequence_id, token_ids, prompt_length, options)

    async def rollback(self, sequence_id: str, length: int) -> int:
        return await self.sequences.rollback(sequence_id, length)

    async def fork(
        self, sequence_id: str, forked_sequence_id: str, length: int | None, sampling: SamplingOptions | None
    ) -> int:
        return await self.sequences.fork(sequence_id, forked_sequence_id, length, sampling)

    async def close(self, sequence_id: str) -> None:
        self.sequences.close(sequence_id)

    async def stop(self) -> None:
        self.sequences.close_all()
        await self.engine.stop()

    def info(self) -> ModelInfo:
        cache = "paged" if isinstance(self.engine.cache, PagedCache) else "contiguous"
        return ModelInfo(
            instance_id=self.instance_id,
            model_name=self.facts.display_name,
            architecture=self.facts.architecture,
            parameter_count=self.facts.parameter_count,
            vocab_size=self.facts.vocab_size,
            max_model_len=self.facts.max_model_len,
            max_num_speculative_tokens=self.max_num_speculative_tokens,
            max_num_seqs=self.sequences.limits.most_of_one_client,
            dtype=str(self.facts.dtype).removeprefix("torch."),
            device=str(self.facts.device),
            cache=cache,
            block_size=self.engine.cache.block_size,
            block_count=self.engine.cache.block_count,
            free_block_count=self.engine.cache.free_block_count,
            sequence_count=len(self.sequences),
            eos_token_ids=tuple(self.facts.eos_token_ids),
            deterministic=self.config.deterministic,
        )

    def tokenizer(self) -> TokenizerFiles | None:
        return self.facts.tokenizer


def load_runner(config: EngineConfig) -> tuple[ModelFacts, ModelRunner]:
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


def choose_runner(config: EngineConfig, model: PreTrainedModel) -> type[ModelRunner]:
    """The way to run the model. Raises ModelRefusedError if it cannot be run in the way that is asked for."""
    if config.deterministic:
        return AlignedRunner
    if config.runner == "plain" or (config.runner == "auto" and not is_fusible(model)):
        return ModelRunner
    if not is_fusible(model):
        raise ModelRefusedError(
            f"--runner is fused, but {type(model).__name__} in {model.dtype} on {model.device.type} is not known to it;"
            " it knows Llama, Mistral, Qwen2 and Qwen3 on a CPU, in float32 or where there are units for it in bfloat16"
        )
    return FusedRunner


def make_cache(config: EngineConfig, facts: ModelFacts) -> KeyValueCache:
    kind = config.cache
    if kind == "auto":
        kind = "contiguous" if facts.device.type == "cpu" else "paged"
    needed = blocks_for(facts.max_model_len, config.block_size)
    if config.num_blocks is not None and config.num_blocks < needed:
        raise ModelRefusedError(
            f"--num-blocks is {config.num_blocks}, but one sequence of {facts.max_model_len} tokens takes {needed}"
        )
    block_count = config.num_blocks or choose_block_count(config, facts)
    cache = PagedCache if kind == "paged" else ContiguousCache
    return cache(facts.layers, block_count, config.block_size, facts.dtype, facts.device)


def choose_block_count(config: EngineConfig, facts: ModelFacts) -> int:
    """Blocks for every sequence at full length, or as many as the memory bears that the cache may take."""
    per_block = config.block_size * token_bytes(facts.layers, facts.dtype)
    affordable = int(cache_bytes(facts.device, config.gpu_memory_utilization) // per_block)
    needed_by_one = blocks_for(facts.max_model_len, config.block_size)
    if affordable < needed_by_one:
        remedy = "lower --max-model-len"
        if facts.device.type == "cuda":
            remedy += f" or raise --gpu-memory-utilization, which is {config.gpu_memory_utilization}"
        raise ModelRefusedError(
            f"the memory holds {affordable * config.block_size} tokens of cache, fewer than the"
            f" {facts.max_model_len} of one sequence; {remedy}"
        )
    return min(affordable, config.max_num_seqs * needed_by_one)


def token_bytes(layers: dict[int, LayerShape], dtype: torch.dtype) -> int:
    """Bytes that one token takes in the cache."""
    return sum(shape.elements for shape in layers.values()) * dtype.itemsize

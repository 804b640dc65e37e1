"""The state of a model process: the engine with its model, and the open sequences."""

import asyncio
import uuid
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Generic, Self

from prometheus_client import Gauge
from prometheus_client.registry import CollectorRegistry
from torch import Tensor

from specpair.engine.device_thread import DeviceThread
from specpair.engine.device_watch import Dependent, watching_device
from specpair.engine.engine import Engine
from specpair.engine.grammar_host import GrammarHost
from specpair.engine.metrics import EngineCollector
from specpair.engine.work import Work
from specpair.engine_config import EngineConfig
from specpair.model_info import ModelInfo, TokenizerFiles
from specpair.models.captured_runner import CapturedRunner
from specpair.models.chains import ChainRunner
from specpair.models.device_defaults import choose_pass_timeout, choose_token_budget
from specpair.models.load_runner import load_runner
from specpair.models.model_facts import ModelFacts
from specpair.models.parallel_work import leave_parallel_work
from specpair.models.pass_costs import cached_token_seconds, measure_passes
from specpair.models.runner import Runner
from specpair.models.sharded_runner import ShardedRunner
from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.cache_owner import CacheOwner
from specpair.sequences.held_sequence import Answer
from specpair.sequences.sequence_limits import SequenceLimits
from specpair.sequences.sequence_store import SequenceStore


class ModelHost(ABC, Generic[Answer]):
    """Created by `start`, ended by `stop`. Each service subclasses it with its hot call."""

    def __init__(self, config: EngineConfig, facts: ModelFacts, runner: Runner, device: DeviceThread):
        self.config = config
        self.facts = facts
        self.instance_id = uuid.uuid4().hex
        self._shards = runner if isinstance(runner, ShardedRunner) else None
        self._runner_description = runner.description
        self.no_trees = runner.no_trees
        """Why proposals cannot be trees; empty if they can."""
        self.max_num_speculative_tokens = min(config.max_num_speculative_tokens, facts.max_model_len - 1)
        self.token_budget = choose_token_budget(config.max_num_batched_tokens, facts.device)
        self.engine = Engine(
            device,
            runner,
            self.advance,
            token_budget=self.token_budget,
            short=self.max_num_speculative_tokens + 2,
            pace=config.pace,
            ready=self.ready,
        )
        if isinstance(runner, CapturedRunner):
            self.engine.statistics.graph_misses = runner.misses
        if isinstance(runner, ChainRunner):
            self.engine.statistics.chain_misses = runner.chain_misses
        self.grammars = GrammarHost(facts)
        self.pass_timeout = choose_pass_timeout(config.pass_timeout, facts.device)
        limits = SequenceLimits(
            max_model_len=facts.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_seqs_per_client=config.max_num_seqs_per_client,
            vocab_size=facts.vocab_size,
            lease_seconds=config.sequence_lease,
            max_encoder_len=0 if facts.encoder is None else facts.encoder.max_encoder_len,
        )
        self.sequences: SequenceStore[Answer] = SequenceStore(self.cache_owner(), limits, self.caller)

    @classmethod
    async def start(cls, config: EngineConfig) -> Self:
        """Loads and checks the model on its device thread. Raises ModelRefusedError with the reason."""
        device = DeviceThread()
        try:
            facts, runner = await device.call(load_runner, config)
            await device.call(cls.prepare, runner)
            costs = await device.call(measure_passes, runner, facts.vocab_size, config.pace)
            leave_parallel_work()
            reading = 0.0 if config.pace else cached_token_seconds(facts, costs)
            host = cls(config, replace(facts, pass_costs=costs, cached_token_seconds=reading), runner, device)
        except BaseException:  # also a stop while the model loads: torch aborts a process that ends in the middle
            device.end()
            await device.join()
            raise
        host.engine.start()
        return host

    @staticmethod
    def prepare(runner: Runner) -> None:
        """Readies a runner that was just loaded for what this service does with it, on its device thread."""
        return None

    @abstractmethod
    def advance(self, works: list[Work], logits: Tensor) -> None:
        """Processes the logits of works; see `specpair.engine.turns.Advance`."""

    def ready(self, works: list[Work]) -> None:
        """Is told all works before each turn; see `specpair.engine.turns.Ready`."""
        return None

    @staticmethod
    @abstractmethod
    def caller() -> str:
        """The client of the current call: sequences belong to clients."""

    def cache_owner(self) -> CacheOwner:
        """Who keeps the caches of the open sequences; called once, when there is an engine."""
        return self.engine

    async def open(self, sequence_id: str, token_ids: list[int], prompt_length: int, options: SequenceOptions) -> None:
        """Registers a sequence. Raises InvalidGrammarError and NotSupportedError for its structured output."""
        structured = options.structured_output
        grammar = None if structured is None else await self.grammars.compile(structured)
        held = self.sequences.open(sequence_id, token_ids, prompt_length, options)
        if grammar is not None:
            self.sequences.follow_grammar(held, grammar)

    async def rollback(self, sequence_id: str, length: int) -> int:
        return await self.sequences.rollback(sequence_id, length)

    async def fork(
        self, sequence_id: str, forked_sequence_id: str, length: int | None, sampling: SamplingOptions | None
    ) -> int:
        return await self.sequences.fork(sequence_id, forked_sequence_id, length, sampling)

    async def close(self, sequence_id: str) -> None:
        self.sequences.close(sequence_id)

    def add_metrics(self, registry: CollectorRegistry) -> None:
        """Registers the engine's metrics and what is served."""
        registry.register(EngineCollector(self.engine))
        info = self.info()
        served = Gauge(
            "specpair_model_info",
            "The model and how its weights are held; always 1.",
            ["model", "dtype", "quantization"],
            registry=registry,
        )
        served.labels(info.model_name, info.dtype, info.quantization).set(1)
        ranks = Gauge("specpair_model_ranks", "Processes that share the model; 1 if it is whole.", registry=registry)
        ranks.set(info.tensor_parallel_size)

    def watching_device(self, dependent: Dependent) -> AbstractAsyncContextManager[None]:
        """Inside the context, the health of `dependent` follows the device's."""
        if self._shards is not None:
            loop = asyncio.get_running_loop()
            self._shards.on_lost(lambda reason: loop.call_soon_threadsafe(self.engine.give_up, reason))
        return watching_device(self.engine, self.pass_timeout, dependent)

    async def stop(self) -> None:
        self.sequences.close_all()
        await self.engine.stop()
        if self._shards is not None:
            await self._shards.close()

    def info(self) -> ModelInfo:
        return ModelInfo(
            instance_id=self.instance_id,
            model_name=self.facts.display_name,
            architecture=self.facts.architecture,
            parameter_count=self.facts.parameter_count,
            vocab_size=self.facts.vocab_size,
            max_model_len=self.facts.max_model_len,
            max_num_speculative_tokens=self.max_num_speculative_tokens,
            max_num_seqs=self.sequences.limits.most_of_one_client,
            tensor_parallel_size=self.facts.tensor_parallel_size,
            dtype=str(self.facts.dtype).removeprefix("torch."),
            quantization=self.facts.quantization,
            divergence=self.facts.divergence,
            device=str(self.facts.device),
            cache=self.engine.cache.name,
            block_size=self.engine.cache.block_size,
            block_count=self.engine.cache.block_count,
            free_block_count=self.engine.cache.free_block_count,
            sequence_count=len(self.sequences),
            eos_token_ids=tuple(self.facts.eos_token_ids),
            deterministic=self.facts.is_deterministic,
            pass_costs=self.facts.pass_costs,
            cached_token_seconds=self.facts.cached_token_seconds,
            runs_trees=not self.no_trees,
            masks_tokens=self.grammars.is_available,
            encoder_decoder=self.facts.encoder,
            runner=self._runner_description,
        )

    def tokenizer(self) -> TokenizerFiles | None:
        return self.facts.tokenizer

"""Makes the cache for a model: its kind and number of blocks."""

from specpair.caches.cache import KeyValueCache, blocks_for, token_bytes
from specpair.caches.cache_memory import cache_bytes
from specpair.caches.contiguous_cache import ContiguousCache
from specpair.caches.paged_cache import PagedCache
from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.models.model_facts import ModelFacts


def make_cache(config: EngineConfig, facts: ModelFacts, *, is_captured: bool = False) -> KeyValueCache:
    """The cache; a runner of captured passes needs a paged one with a spare block. Raises ModelRefusedError."""
    kind = config.cache
    if kind == "auto" and is_captured:
        kind = "paged"
    if kind == "auto":
        kind = "contiguous" if facts.device.type == "cpu" else "paged"
    needed = blocks_for(facts.max_model_len, config.block_size)
    if config.num_blocks is not None and config.num_blocks < needed:
        raise ModelRefusedError(
            f"--num-blocks is {config.num_blocks}, but one sequence of {facts.max_model_len} tokens needs {needed}"
        )
    block_count = config.num_blocks or choose_block_count(config, facts)
    shape = (facts.layers, block_count, config.block_size, facts.dtype, facts.device)
    return PagedCache(*shape, has_spare_block=is_captured) if kind == "paged" else ContiguousCache(*shape)


def choose_block_count(config: EngineConfig, facts: ModelFacts) -> int:
    """Blocks for all sequences at full length, or as many as fit into the memory for the cache."""
    per_block = config.block_size * token_bytes(facts.layers, facts.dtype)
    memory = cache_bytes(facts.device, config.gpu_memory_utilization) - config.max_num_seqs * encoding_bytes(facts)
    affordable = max(int(memory // per_block), 0)
    needed_by_one = blocks_for(facts.max_model_len, config.block_size)
    if affordable < needed_by_one:
        remedy = "lower --max-model-len" if facts.encoder is None else "lower --max-num-seqs or --max-model-len"
        if facts.device.type == "cuda":
            remedy += f" or raise --gpu-memory-utilization, which is {config.gpu_memory_utilization}"
        raise ModelRefusedError(
            f"the memory holds {affordable * config.block_size} tokens of cache, fewer than the"
            f" {facts.max_model_len} of one sequence; {remedy}"
        )
    return min(affordable, config.max_num_seqs * needed_by_one)


def encoding_bytes(facts: ModelFacts) -> int:
    """Most memory of what the encoder gave for one sequence: keys and values of each layer for each token that it read.
    0 without an encoder."""
    return 0 if facts.encoder is None else facts.encoder.max_encoder_len * token_bytes(facts.layers, facts.dtype)

"""Loads one rank of a group, the leader's or another, up to its runner."""

from dataclasses import replace

import torch

from specpair.caches.cache import blocks_for
from specpair.caches.paged_cache import PagedCache
from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.models.aligned_runner import AlignedRunner
from specpair.models.device_defaults import choose_pass_timeout, choose_threads
from specpair.models.find_checkpoint import find_checkpoint
from specpair.models.leading_cache import LeadingCache
from specpair.models.loading import LoadedModel, load
from specpair.models.model_cache import choose_block_count
from specpair.models.model_facts import ModelFacts
from specpair.models.parallel_work import claim_parallel_work
from specpair.models.plain_runner import PlainRunner
from specpair.models.self_check import check, check_deterministic
from specpair.models.shard_follower import ShardFollower
from specpair.models.shard_ranks import ShardRanks
from specpair.models.sharded_runner import ShardedRunner
from specpair.models.shares import refuse_options
from specpair.sharding.config import Membership, membership_of_environment
from specpair.sharding.group import GroupLostError, ShardGroup
from specpair.sharding.refusals import refuse_undivided

SILENT_PASSES = 2.0
"""Timeouts of a pass after which a rank that says nothing is lost; the device watch gives up after as many."""


def load_leader(config: EngineConfig) -> tuple[ModelFacts, ShardedRunner]:
    """Starts the other ranks, if they run on this machine, and loads the leader's share. Raises ModelRefusedError."""
    refuse_options(config)
    settings = find_checkpoint(config.model, is_exact=config.dtype == "float32").settings()
    refuse_undivided(settings, config.tensor_parallel_size)  # before any process is started
    member = membership_of_environment(config.tensor_parallel_size)
    ranks = ShardRanks(config) if member is None else None
    group: ShardGroup | None = None
    try:
        if ranks is not None:
            group = ShardGroup(ranks.leader, ranks.check)
        else:
            assert member is not None
            group = ShardGroup(member)
        return lead(config, group, ranks)
    except BaseException as error:
        reason = "" if ranks is None else ranks.reason
        if ranks is not None:
            ranks.kill()
        if group is not None:
            group.abandon()
        if isinstance(error, GroupLostError) or (reason and isinstance(error, Exception)):
            causes = dict.fromkeys(filter(None, [reason, str(error)]))
            raise ModelRefusedError(f"the group of ranks could not start: {'; '.join(causes)}") from error
        raise


def lead(config: EngineConfig, group: ShardGroup, ranks: ShardRanks | None) -> tuple[ModelFacts, ShardedRunner]:
    loaded, inner, cache = load_rank(config, group)
    assert isinstance(cache, LeadingCache)
    runner = ShardedRunner(inner, cache, group, ranks)
    check(loaded, runner, lambda ids: runner.plain_logits(loaded, ids))
    if loaded.facts.is_deterministic:
        check_deterministic(loaded, runner)
    if ranks is not None:
        ranks.forget_meeting()
    return loaded.facts, runner


def load_follower(config: EngineConfig, member: Membership) -> ShardFollower:
    """Joins the group and loads a share that is not the leader's. Raises ModelRefusedError, GroupLostError."""
    refuse_options(config)
    group = ShardGroup(member)
    loaded, inner, cache = load_rank(config, group)
    return ShardFollower(loaded, inner, cache, group)


def load_rank(config: EngineConfig, group: ShardGroup) -> tuple[LoadedModel, PlainRunner | AlignedRunner, PagedCache]:
    """The share of this rank, with its cache. All ranks call it at once. Raises ModelRefusedError."""
    member = group.member
    if torch.cuda.is_available():
        torch.cuda.set_device(member.local_rank)
        config = replace(config, device=f"cuda:{member.local_rank}")
    loaded = load(config)
    facts = loaded.facts
    threads = choose_threads(config.threads, facts.parameter_count, facts.device)
    if config.threads is None and facts.device.type == "cpu":
        threads = max(1, threads // member.local_size)
    claim_parallel_work(threads)
    cache_class = LeadingCache if member.is_leader else PagedCache
    blocks = group.agree_on_least(own_block_count(config, facts, member))
    cache = cache_class(facts.layers, blocks, config.block_size, facts.dtype, facts.device)
    runner = AlignedRunner(loaded, cache) if config.deterministic else PlainRunner(loaded, cache)
    group.limit(SILENT_PASSES * choose_pass_timeout(config.pass_timeout, facts.device))
    return loaded, runner, cache


def own_block_count(config: EngineConfig, facts: ModelFacts, member: Membership) -> int:
    """Blocks that this rank has room for; on a CPU the ranks of a machine share its memory. Raises
    ModelRefusedError."""
    needed = blocks_for(facts.max_model_len, config.block_size)
    if config.num_blocks is not None and config.num_blocks < needed:
        raise ModelRefusedError(
            f"--num-blocks is {config.num_blocks}, but one sequence of {facts.max_model_len} tokens needs {needed}"
        )
    if config.num_blocks is not None:
        return config.num_blocks
    count = choose_block_count(config, facts)
    return count if facts.device.type == "cuda" else max(needed, count // member.local_size)

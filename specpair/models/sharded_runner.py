"""The leader's runner: each pass is told to the other ranks, which run the same one over their own heads."""

import asyncio
from collections.abc import Callable

import torch
from torch import Tensor

from specpair.caches.cache import KeyValueCache
from specpair.errors import NotSupportedError
from specpair.models.batch import Batch, PassOutput
from specpair.models.leading_cache import LeadingCache
from specpair.models.loading import LoadedModel
from specpair.models.runner import Runner
from specpair.models.self_check import plain_logits
from specpair.models.shard_ranks import ShardRanks
from specpair.sharding.group import ShardGroup
from specpair.sharding.orders import Move, PassOrder, PlainOrder, TableSegment


class ShardedRunner:
    """Runs the leader's share of the model, in step with the others. Device thread only, but for `on_lost`."""

    def __init__(self, inner: Runner, cache: LeadingCache, group: ShardGroup, ranks: ShardRanks | None):
        """`ranks` are the processes of the others, if this process started them."""
        self._inner = inner
        self._leading_cache = cache
        self._group = group
        self._ranks = ranks
        self.cache: KeyValueCache = cache
        self.device = inner.device
        self.no_trees = inner.no_trees
        self.description = f"{inner.description} on {group.member.size} ranks"
        if ranks is not None:
            ranks.on_end(group.lose)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        """Raises GroupLostError if a rank is lost, or the pass fails on any of them."""
        if batch.parents is not None and self.no_trees:
            raise NotSupportedError(self.no_trees)
        with self._group.leading(order_of(batch, self._leading_cache.take_moves())):
            return self._inner.forward(batch)

    def plain_logits(self, loaded: LoadedModel, ids: Tensor) -> Tensor:
        """What `specpair.models.self_check.plain_logits` gives, of the model on all ranks."""
        with self._group.leading(PlainOrder(token_ids=ids.tolist())):
            return plain_logits(loaded, ids)

    def on_lost(self, callback: Callable[[str], object]) -> None:
        """Calls back with the reason when a rank is lost."""
        self._group.on_lost(callback)

    async def close(self) -> None:
        """Ends the group and waits for the ranks that this process started, once the device thread has ended."""
        if self._ranks is not None:
            self._ranks.expect_end()
        await asyncio.to_thread(self._group.leave)
        if self._ranks is not None:
            await asyncio.to_thread(self._ranks.kill if self._group.is_lost else self._ranks.stop)


def order_of(batch: Batch, moves: list[Move]) -> PassOrder:
    """What the others have to do for a pass over `batch`."""
    return PassOrder(
        moves=moves,
        segments=[
            TableSegment(segment.holding.storage, segment.start, segment.token_count) for segment in batch.segments
        ],
        token_ids=batch.token_ids,
        positions=batch.positions,
        rows=batch.rows,
        parents=batch.parents,
        feature_layers=batch.feature_layers,
        has_all_features=batch.has_all_features,
    )

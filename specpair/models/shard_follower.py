"""A rank that follows: it does what the leader tells, and decides nothing."""

import torch

from specpair.caches.holding import Holding, Segment
from specpair.caches.paged_cache import PagedCache
from specpair.models.batch import Batch
from specpair.models.loading import LoadedModel
from specpair.models.runner import Runner
from specpair.models.self_check import plain_logits
from specpair.sharding.group import ShardGroup
from specpair.sharding.orders import Beat, Move, Order, PassOrder, PlainOrder, Stop


class ShardFollower:
    """One share of the model, with the keys and values of its heads."""

    def __init__(self, loaded: LoadedModel, runner: Runner, cache: PagedCache, group: ShardGroup):
        """`cache` has the leader's number of blocks; its pool of blocks is not used."""
        self._loaded = loaded
        self._runner = runner
        self._cache = cache
        self._group = group

    def follow(self) -> None:
        """Obeys until the leader ends the group. Raises GroupLostError if it is gone, and whatever a pass raises."""
        while not isinstance(order := self._group.hear(), Stop):
            self.obey(order)
        self._group.leave()

    def obey(self, order: Order) -> None:
        """Does its part of one order."""
        if isinstance(order, PassOrder):
            run_share(self._runner, self._cache, order)
        elif isinstance(order, PlainOrder):
            plain_logits(self._loaded, torch.tensor(order.token_ids))
        elif isinstance(order, Beat):
            self._group.acknowledge()


def run_share(runner: Runner, cache: PagedCache, order: PassOrder) -> None:
    """Brings the cache up to date and runs the pass; the leader has the logits."""
    apply_moves(cache, order.moves)
    runner.forward(batch_of_order(order))


def apply_moves(cache: PagedCache, moves: list[Move]) -> None:
    """Does to the cache's slots what the leader's cache did to its own."""
    for move in moves:
        sources, targets = (torch.tensor(slots, dtype=torch.long, device=cache.device) for slots in move)
        cache.move(sources, targets)


def batch_of_order(order: PassOrder) -> Batch:
    """The leader's batch, with holdings that have no owner here."""
    return Batch(
        segments=[Segment(Holding(start + count, blocks), start, count) for blocks, start, count in order.segments],
        token_ids=order.token_ids,
        positions=order.positions,
        rows=order.rows,
        parents=order.parents,
        feature_layers=order.feature_layers,
        has_all_features=order.has_all_features,
    )

"""A runner whose target has Medusa heads: each of its passes also keeps the last hidden states."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specpair.caches.cache import KeyValueCache
from specpair.caches.holding import Holding, Segment
from specpair.models.batch import Batch, PassOutput
from specpair.models.drafting_runner import run_tapped
from specpair.models.runner import Runner
from specpair.options import Drafter

if TYPE_CHECKING:
    from specpair.models.medusa_head import MedusaHead


class MedusaRunner:
    """The target by another runner, and the heads beside it. Device thread only."""

    drafters: tuple[Drafter, ...] = (Drafter.MEDUSA, Drafter.BLOCKWISE)
    takes_steps: bool = False
    feeds_itself: bool = False

    def __init__(self, inner: Runner, head: "MedusaHead", layer_count: int):
        """The cache has one layer after the target's `layer_count`, for the states."""
        self.inner, self.head = inner, head
        self.cache: KeyValueCache = inner.cache
        self.device = inner.device
        self.no_trees = inner.no_trees
        self.most_tokens = head.head_count
        self.description = f"{inner.description}, with {head.head_count} Medusa heads"
        self._states = layer_count

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        output, features = run_tapped(self.inner, batch, (self.head.feature_layer,))
        states = features.to(self.head.dtype)
        self.cache.access(batch.segments).write(self._states, states, states.new_empty(1, states.size(1), 0))
        return output

    def begin(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> "MedusaRun":
        """A draft after what is stored at the last of each sequence's `places`."""
        found = [self._state_at(holding, own[-1]) for holding, own in zip(holdings, places, strict=True)]
        return MedusaRun(self.head, torch.stack(found))

    def _state_at(self, holding: Holding, place: int) -> Tensor:
        """What left the last layer `[width]` for a fed token."""
        keys, _ = self.cache.access([Segment(holding, place, 1)]).read(self._states, 0)
        return keys[0, place]


class MedusaRun:
    """One draft of several sequences: each step asks the next head."""

    def __init__(self, head: "MedusaHead", states: Tensor):
        self._head, self._states = head, states
        self._count = 0

    @torch.inference_mode()
    def logits(self, token_ids: list[int], rows: list[int]) -> Tensor:
        """`[rows, vocabulary]`; what was drawn makes no difference."""
        self._count += 1
        return self._head.logits(self._count - 1, self._states[rows])

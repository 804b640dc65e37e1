"""A runner whose target has an EAGLE-3 head: each of its passes also keeps what the head needs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from specpair.caches.cache import KeyValueCache
from specpair.caches.contiguous_cache import ContiguousCache
from specpair.caches.holding import Holding
from specpair.models.batch import Batch, PassOutput
from specpair.models.drafting_runner import DraftRun, TreeRun, run_tapped
from specpair.models.runner import Runner
from specpair.options import Drafter


class HeadedRunner(ABC):
    """The target by another runner, and the head beside it. Device thread only."""

    drafters: tuple[Drafter, ...] = (Drafter.EAGLE,)
    most_tokens: int
    takes_steps: bool = True
    feeds_itself: bool = False

    def __init__(self, inner: Runner, feature_layers: tuple[int, ...], layer_count: int, most_tokens: int):
        """The cache has the head's two layers after the target's `layer_count`."""
        self.inner = inner
        self.cache: KeyValueCache = inner.cache
        if isinstance(inner.cache, ContiguousCache):
            inner.cache.makes_tails = False  # what the head keeps is found by position
        self.device = inner.device
        self.no_trees = inner.no_trees
        self.most_tokens = most_tokens
        self.description = f"{inner.description}, with an EAGLE-3 head"
        self.attention, self.joined = layer_count, layer_count + 1
        """The layers of the cache with the head's keys and values, and with the joined features as keys."""
        self._feature_layers = feature_layers

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        output, features = run_tapped(self.inner, batch, self._feature_layers)
        self.keep(batch, features)
        return output

    @abstractmethod
    def keep(self, batch: Batch, features: Tensor) -> None:
        """Writes the joined features of the tokens, and the head's keys and values of their pairs, from the target's
        features `[layers, tokens, hidden]`."""

    @abstractmethod
    def begin(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> DraftRun:
        """A draft of at most `most` tokens for each sequence. Its last token is not fed yet; `places` say where the
        cache has those before: in order, unless the last of them are a path of a tree."""

    @abstractmethod
    def grow(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> TreeRun:
        """A tree for each sequence, with at most `most` nodes to ask for; `places` as `begin` takes them."""

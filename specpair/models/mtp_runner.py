"""A runner whose target has layers for multi-token prediction: each of its passes also runs these for all tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specpair.caches.cache import KeyValueCache
from specpair.caches.holding import Holding, Segment
from specpair.models.batch import Batch, PassOutput
from specpair.models.drafting_runner import run_tapped
from specpair.models.mtp_plan import DraftingPlan, StoringPlan
from specpair.models.runner import Runner
from specpair.options import Drafter

if TYPE_CHECKING:
    from specpair.models.mtp_head import MtpHead


class MtpRunner:
    """The target by another runner, and the layers beside it. Device thread only."""

    drafters: tuple[Drafter, ...] = (Drafter.MTP,)
    takes_steps: bool = True
    feeds_itself: bool = False

    def __init__(self, inner: Runner, head: "MtpHead", layer_count: int):
        """The cache has the layers' keys and values after the target's `layer_count`, then the states before each."""
        self.inner, self.head = inner, head
        self.cache: KeyValueCache = inner.cache
        self.device = inner.device
        self.no_trees = inner.no_trees
        self.most_tokens = head.depth
        self.description = f"{inner.description}, with {head.depth} layers for multi-token prediction"
        self._attention, self._states = layer_count, layer_count + head.depth

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        output, features = run_tapped(self.inner, batch, (self.head.feature_layer,))
        token_ids, positions = (torch.tensor(part, device=self.device) for part in (batch.token_ids, batch.positions))
        access = self.cache.access(batch.segments)
        plan = StoringPlan(access, batch.segments, batch.parents, self.device, self._attention)
        states = self.head.norm(features[0].to(self.head.dtype))
        for depth in range(self.head.depth):
            access.write(self._states + depth, states[None], states.new_empty(1, len(states), 0))
            before = self._before(batch, states, depth)
            states = self.head.run(depth, token_ids, before, positions, plan)
        return output

    def _before(self, batch: Batch, states: Tensor, depth: int) -> Tensor:
        """Of these states of the tokens those of the tokens before them, `[tokens, width]`; 0 for the first of a
        sequence."""
        parents = batch.parents or [row - 1 for row in range(len(states))]
        before = states[[parent or 0 for parent in parents]]
        first = 0
        for segment in batch.segments:
            rows = range(first, first + segment.token_count)
            follow = [row for row in rows if row == first or parents[row] is None]
            before[follow] = self.state_at(depth, segment.holding, segment.start - 1) if segment.start else 0.0
            first = rows.stop
        return before

    def state_at(self, depth: int, holding: Holding, place: int) -> Tensor:
        """What the layer at a depth has of the fed token at `place`, for the pair of the next one: `[width]`."""
        keys, _ = self.cache.access([Segment(holding, place, 1)]).read(self._states + depth, 0)
        return keys[0, place]

    def stored(self, depth: int, holding: Holding, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Keys and values `[heads, tokens, size]` of the fed tokens at `places`."""
        keys, values = self.cache.access([Segment(holding, 0, places[-1] + 1)]).read(self._attention + depth, 0)
        if isinstance(places, range):
            return keys, values
        chosen = torch.tensor(places, device=self.device)
        return keys.index_select(1, chosen), values.index_select(1, chosen)

    def begin(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> "MtpRun":
        """A draft after the tokens at `places`, each token by the next depth."""
        return MtpRun(self, holdings, places)


class MtpRun:
    """One draft of several sequences. The layer at a depth has not seen the tokens since the verdict, so a step feeds
    it all of them."""

    def __init__(self, runner: MtpRunner, holdings: list[Holding], places: list[Sequence[int]]):
        self._runner, self._holdings, self._places = runner, holdings, places
        self._tokens: list[list[int]] = [[] for _ in places]
        self._states: list[Tensor | None] = [None] * len(places)
        """What the depth before gave for these tokens, `[tokens, width]`."""
        self._depth = 0

    @torch.inference_mode()
    def logits(self, token_ids: list[int], rows: list[int]) -> Tensor:
        """`[rows, vocabulary]` by the next depth."""
        runner, depth = self._runner, self._depth
        before: list[Tensor] = []
        positions: list[int] = []
        for token, row in zip(token_ids, rows, strict=True):
            self._tokens[row].append(token)
            length, own = len(self._places[row]), self._states[row]
            last = runner.state_at(depth, self._holdings[row], self._places[row][-1])[None]
            before.append(last if own is None else torch.cat([last, own]))
            positions += range(length, length + depth + 1)
        plan = DraftingPlan([runner.stored(depth, self._holdings[row], self._places[row]) for row in rows], depth + 1)
        fed = [token for row in rows for token in self._tokens[row]]
        tokens, places = (torch.tensor(part, device=runner.device) for part in (fed, positions))
        states = runner.head.run(depth, tokens, torch.cat(before), places, plan).view(len(rows), depth + 1, -1)
        for row, own in zip(rows, states, strict=True):
            self._states[row] = own
        self._depth += 1
        return runner.head.logits(states[:, -1])

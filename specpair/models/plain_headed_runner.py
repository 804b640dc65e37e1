"""An EAGLE-3 head beside any runner, by operators of torch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specpair.caches.holding import Holding, Segment
from specpair.models.batch import Batch
from specpair.models.drafting_runner import HeadDraft
from specpair.models.eagle_head import EagleHead
from specpair.models.head_trees import HeadTrees, with_room
from specpair.models.headed_runner import HeadedRunner
from specpair.models.runner import Runner


class PlainHeadedRunner(HeadedRunner):
    """Keys and values of what the head drafts are kept beside the cache. Device thread only."""

    def __init__(self, inner: Runner, head: EagleHead, layer_count: int, most_tokens: int):
        super().__init__(inner, head.feature_layers, layer_count, most_tokens)
        self.head = head

    def keep(self, batch: Batch, features: Tensor) -> None:
        access = self.cache.access(batch.segments)
        joined = self.head.join(features)
        cached = joined.to(self.head.dtype)
        access.write(self.joined, cached[None], cached.new_empty(1, len(cached), 0))
        token_ids, positions = (torch.tensor(part, device=self.device) for part in (batch.token_ids, batch.positions))
        _, (_, keys, values) = self.head.enter(token_ids, self._before(batch, cached), positions)
        access.write(self.attention, keys, values)

    def _before(self, batch: Batch, joined: Tensor) -> Tensor:
        """The joined features of the token before each token, `[tokens, width]`; 0 for the first of a sequence, whose
        keys nothing reads."""
        parents = batch.parents or [row - 1 for row in range(len(joined))]
        before = joined[[parent or 0 for parent in parents]].float()
        first = 0
        for segment in batch.segments:
            rows = range(first, first + segment.token_count)
            follow = [row for row in rows if row == first or parents[row] is None]
            before[follow] = self._features_at(segment.holding, segment.start - 1).float() if segment.start else 0.0
            first = rows.stop
        return before

    def _features_at(self, holding: Holding, position: int) -> Tensor:
        """The joined features `[width]` of a fed token."""
        keys, _ = self.cache.access([Segment(holding, position, 1)]).read(self.joined, 0)
        return keys[0, position]

    def begin(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> "HeadRun":
        return HeadRun(self, holdings, places, most)

    def grow(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> HeadTrees:
        return HeadTrees(self, holdings, places, most)

    def history(self, holding: Holding, places: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """The head's keys and values `[heads, fed tokens - 1, size]` of the fed tokens but the first, and the joined
        features of the last."""
        keys, values = self.cache.access([Segment(holding, 0, places[-1] + 1)]).read(self.attention, 0)
        if not isinstance(places, range):
            chosen = torch.tensor(places, device=self.device)
            keys, values = keys.index_select(1, chosen), values.index_select(1, chosen)
        return keys[:, 1:], values[:, 1:], self._features_at(holding, places[-1])


class HeadRun(HeadDraft):
    """One draft of several sequences, step by step. A token that was drawn is told with the next call."""

    def __init__(self, runner: PlainHeadedRunner, holdings: list[Holding], places: list[Sequence[int]], most: int):
        super().__init__(runner.head.outputs)
        self._head, self._lengths = runner.head, [len(own) + 1 for own in places]
        found = [runner.history(holding, own) for holding, own in zip(holdings, places, strict=True)]
        self._memory = [(with_room(keys, most), with_room(values, most)) for keys, values, _ in found]
        self._hidden = torch.stack([features.float() for _, _, features in found])
        self._count = 0
        """Steps so far."""

    @torch.inference_mode()
    def narrow_logits(self, token_ids: list[int], rows: list[int]) -> Tensor:
        positions = [self._lengths[row] - 1 + self._count for row in rows]
        tokens, places = (torch.tensor(part, device=self._head.device) for part in (token_ids, positions))
        residual, (query, key, value) = self._head.enter(tokens, self._hidden[rows], places)
        mixed = []
        for index, row in enumerate(rows):
            keys, values = self._memory[row]
            end = self._lengths[row] - 1 + self._count
            keys[:, end - 1], values[:, end - 1] = key[:, index], value[:, index]
            mixed.append(self._head.attend(query[:, index : index + 1], keys[:, :end], values[:, :end]))
        hidden, logits = self._head.leave(residual, torch.cat(mixed, dim=1))
        if len(rows) == len(self._hidden):
            self._hidden = hidden
        else:
            self._hidden[rows] = hidden
        self._count += 1
        return logits

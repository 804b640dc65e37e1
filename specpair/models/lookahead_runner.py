"""A runner whose target looks ahead: after a verdict it runs a second, small pass, which gives a whole proposal.

That pass feeds the token that the verdict ended with, and the look-ahead embeddings after it. The row of the token is
the target's own, so the first proposed token is always accepted; the row of the i-th embedding stands for the token i
places after that. Which row of the verification is the last accepted one is known only after the verdict. Embeddings
after every row of the verification would save the second pass, for (K + 1) K more rows in the first one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specpair.caches.cache import KeyValueCache
from specpair.caches.holding import Holding, Segment
from specpair.models.batch import Batch, PassOutput
from specpair.models.runner import Runner
from specpair.options import Drafter


class LookaheadRunner:
    """The target by another runner. Device thread only."""

    drafters: tuple[Drafter, ...] = (Drafter.PASS,)
    takes_steps: bool = False
    feeds_itself: bool = True

    def __init__(self, inner: Runner, first_id: int, count: int, longest: int):
        """The embeddings have the ids from `first_id` on; `longest` is the number of positions of a sequence."""
        self.inner = inner
        self.cache: KeyValueCache = inner.cache
        self.device = inner.device
        self.no_trees = inner.no_trees
        self.most_tokens = 1 + count
        self.description = f"{inner.description}, with {count} look-ahead embeddings"
        self._first_id, self._longest = first_id, longest

    def forward(self, batch: Batch) -> PassOutput:
        return self.inner.forward(batch)

    def begin(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> "LookaheadRun":
        """A draft after the tokens at `places`, which are in order. What the holdings have beyond is dropped."""
        return LookaheadRun(self, holdings, [len(own) for own in places], most)

    def look_ahead(self, holdings: list[Holding], lengths: list[int], newest: list[int], most: int) -> list[Tensor]:
        """Logits `[rows, vocabulary]` of the newest token of each sequence, which is not fed yet, and of the embeddings
        after it: `most` rows, or as many as the sequence has positions left. Leaves nothing in the cache. Raises
        CapacityExhaustedError."""
        counts = [min(most, self._longest - length) for length in lengths]
        ahead = range(self._first_id, self._first_id + most - 1)
        try:
            segments: list[Segment] = []
            for holding, length, count in zip(holdings, lengths, counts, strict=True):
                self.cache.truncate_to(holding, length)
                self.cache.append(holding, count)
                segments.append(Segment(holding, length, count))
            token_ids = [
                token for own, count in zip(newest, counts, strict=True) for token in (own, *ahead[: count - 1])
            ]
            output = self.inner.forward(Batch.of_chains(segments, token_ids, counts))
            return list(output.logits.split(counts))
        finally:
            for holding, length in zip(holdings, lengths, strict=True):
                self.cache.truncate_to(holding, min(length, holding.length))


class LookaheadRun:
    """One draft of several sequences: one pass gives the logits of all steps."""

    def __init__(self, runner: LookaheadRunner, holdings: list[Holding], lengths: list[int], most: int):
        self._runner, self._holdings, self._lengths, self._most = runner, holdings, lengths, most
        self._found: list[Tensor] | None = None
        self._count = 0

    @torch.inference_mode()
    def logits(self, token_ids: list[int], rows: list[int]) -> Tensor:
        """`[rows, vocabulary]`. The first call has the newest token of every sequence."""
        if self._found is None:
            self._found = self._runner.look_ahead(self._holdings, self._lengths, token_ids, self._most)
        self._count += 1
        return torch.stack([self._found[row][self._count - 1] for row in rows])

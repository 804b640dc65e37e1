"""Runs forward passes. Anything that happens on the device, short of sampling, happens here."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specpair.caches.cache import KeyValueCache
from specpair.models.attention import CachedAttention, ForwardContext
from specpair.models.batch import Batch
from specpair.models.loading import LoadedModel


class ModelRunner:
    """One model and its cache. Used by the device thread alone."""

    description = "run by transformers"

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache):
        self.cache = cache
        self._model = loaded.model
        self.device = loaded.facts.device

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        """Logits `[rows, vocabulary]` of `batch.rows`, float32."""
        context = CachedAttention(self.cache.plan(batch.segments), batch.segments, self.device)
        return self._run(batch.token_ids, batch.positions, batch.rows, context)

    def _run(
        self, token_ids: Sequence[int], positions: Sequence[int], rows: Sequence[int], context: ForwardContext
    ) -> Tensor:
        """One pass of the model; the logits `[rows, vocabulary]` of the tokens at the indices `rows`."""
        output = self._model(
            input_ids=self._tensor(token_ids)[None],
            position_ids=self._tensor(positions)[None],
            use_cache=False,
            logits_to_keep=self._tensor(rows),
            forward_context=context,
        )
        return output.logits[0].float()

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self.device)

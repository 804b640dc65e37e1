"""The runner for all models that transformers runs."""

import torch

from specpair.caches.cache import KeyValueCache
from specpair.models.batch import Batch, PassOutput
from specpair.models.loading import LoadedModel
from specpair.models.packed_model import PackedModel


class PlainRunner:
    """Runs the model with transformers' own code."""

    description = "plain (transformers)"
    no_trees = ""

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache):
        self.cache = cache
        self.device = loaded.facts.device
        self._packed = PackedModel(loaded.model)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        plan = self.cache.plan(batch.segments, batch.parents)
        return self._packed.run(
            batch.token_ids, batch.positions, batch.rows, plan, batch.feature_layers, batch.feature_rows
        )

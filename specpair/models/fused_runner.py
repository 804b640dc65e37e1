"""The runner for models that `specpair.models.fused_llama` supports."""

import torch
from torch import Tensor

from specpair.caches.cache import KeyValueCache
from specpair.caches.plan import CachePlan
from specpair.caches.rowwise_plan import RowwisePlan
from specpair.model_info import NOT_QUANTISED
from specpair.models import int8_linear
from specpair.models.batch import Batch, PassOutput
from specpair.models.fused_llama import FusedLlama
from specpair.models.loading import LoadedModel


class FusedRunner:
    """Runs a packed copy of the model, and does not keep the model itself."""

    description = "fused (packed)"
    no_trees = ""

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache):
        self.cache = cache
        self.device = loaded.facts.device
        self._fused = FusedLlama(loaded.model, loaded.facts)
        self._is_quantised = loaded.facts.packing != NOT_QUANTISED

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        token_ids, positions = torch.tensor(batch.token_ids), torch.tensor(batch.positions)
        plan = self._plan(batch)
        return self._fused.forward(token_ids, positions, batch.rows, plan, batch.feature_layers, batch.feature_rows)

    @staticmethod
    def rounding(x: Tensor, bits: int) -> Tensor:
        """The inputs of a product with weights of 8 or 4 bits, rounded as they are here."""
        if bits == 4:
            return x.bfloat16().to(x.dtype)
        return int8_linear.rounded_rows(x, int8_linear.input_steps())

    def _plan(self, batch: Batch) -> CachePlan:
        """Quantised inputs need attention by rows: they would make steps of the last bits in which passes differ."""
        if not self._is_quantised:
            return self.cache.plan(batch.segments, batch.parents)
        return RowwisePlan(self.cache.access(batch.segments), batch.segments, batch.parents)

"""The model runner for models that `specpair.models.fused_llama` knows."""

from collections.abc import Sequence

from torch import Tensor

from specpair.caches.cache import KeyValueCache
from specpair.models.attention import ForwardContext
from specpair.models.fused_llama import FusedLlama
from specpair.models.loading import LoadedModel
from specpair.models.model_runner import ModelRunner


class FusedRunner(ModelRunner):
    """Runs a packed copy of the model, and does not keep the model itself."""

    description = "fused and packed"

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache):
        super().__init__(loaded, cache)
        del self._model
        self._fused = FusedLlama(loaded.model, loaded.facts)

    def _run(
        self, token_ids: Sequence[int], positions: Sequence[int], rows: Sequence[int], context: ForwardContext
    ) -> Tensor:
        return self._fused.forward(self._tensor(token_ids), self._tensor(positions), rows, context)

"""Records in a first forward pass what each layer caches and needs."""

import torch
from torch import Tensor

from specpair.caches.attention import Variant, attend
from specpair.caches.cache import LayerShape
from specpair.caches.plan import CachePlan
from specpair.errors import ModelRefusedError


class LayerRecorder(CachePlan):
    """A plan without a cache, for one whole sequence."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.variants: dict[int, Variant] = {}

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        if layer in self.shapes:
            raise ModelRefusedError(f"attention layer {layer} runs more than once in a forward pass")
        self.shapes[layer] = LayerShape(keys.size(0), keys.size(2), values.size(2))
        self.variants[layer] = variant
        groups, count = query.size(0) // keys.size(0), query.size(1)
        mask = torch.ones(count, count, dtype=torch.bool, device=query.device).tril()
        return attend(query, keys, values, mask.repeat(groups, 1), variant)

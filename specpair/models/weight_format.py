"""The forms in which the fused runner can hold the weights of a model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specpair.models import int4_linear, int8_linear, packed_linear
from specpair.models.packed_linear import PackedLinear


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How one weight is held."""

    bits: int
    """Of a weight; 16 stands for as they are in the checkpoint."""
    pack: Callable[[Tensor, Tensor | None], PackedLinear]
    """Makes the product with a weight `[out, in]` and a bias."""
    stored: Callable[[Tensor], Tensor]
    """The weight that is multiplied by in the place of the given one."""


@dataclass(frozen=True, kw_only=True)
class WeightFormat:
    """How all weights are held. Embeddings and norms keep theirs."""

    layers: Packing
    head: Packing
    """The output head: its products are logits, where a coarser step makes ties."""
    tolerance: float = 0.0
    """Largest difference of a logit from that of the stored weights, relative to the largest logit."""


AS_THEY_ARE = Packing(bits=16, pack=packed_linear.pack, stored=lambda weight: weight)
INT8 = Packing(bits=8, pack=int8_linear.pack, stored=int8_linear.stored)
INT4 = Packing(bits=4, pack=int4_linear.pack, stored=int4_linear.stored)

FORMATS = {
    "none": WeightFormat(layers=AS_THEY_ARE, head=AS_THEY_ARE),
    "int8": WeightFormat(layers=INT8, head=INT8, tolerance=0.1),
    "int4": WeightFormat(layers=INT4, head=INT8, tolerance=0.1),
}
"""By the values of `--quantization`."""


@torch.no_grad()
def restore_stored(model: PreTrainedModel, weight_format: WeightFormat) -> None:
    """Gives the model the weights that are multiplied by in this format, so that it is what the runner serves."""
    inner: Any = model.model
    for layer in inner.layers:
        for block in (layer.self_attn, layer.mlp):
            for module in block.children():
                if isinstance(module, nn.Linear):
                    module.weight.copy_(weight_format.layers.stored(module.weight))
    head: Any = model.lm_head
    head.weight = nn.Parameter(weight_format.head.stored(head.weight).to(head.weight.dtype), requires_grad=False)

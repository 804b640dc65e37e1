"""The forms in which the fused runner can hold the weights of a model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

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
    """Largest difference of a logit from the model's own with these weights and inputs rounded alike, relative to the
    largest logit. A last bit moves an input by a whole step: SmolLM2 had up to 0.15 in int8 and 0.065 in int4."""


AS_THEY_ARE = Packing(bits=16, pack=packed_linear.pack, stored=lambda weight: weight)
INT8 = Packing(bits=8, pack=int8_linear.pack, stored=int8_linear.stored)
INT4 = Packing(bits=4, pack=int4_linear.pack, stored=int4_linear.stored)

FORMATS = {
    "none": WeightFormat(layers=AS_THEY_ARE, head=AS_THEY_ARE),
    "int8": WeightFormat(layers=INT8, head=INT8, tolerance=0.3),
    "int4": WeightFormat(layers=INT4, head=INT8, tolerance=0.2),
}
"""By the values of `--quantization`."""


Rounding: TypeAlias = Callable[[Tensor, int], Tensor]
"""What a runner makes of the inputs of a product with weights of so many bits."""


@torch.no_grad()
def restore_stored(model: PreTrainedModel, weight_format: WeightFormat) -> None:
    """Gives the model the weights that are multiplied by in this format, so that it is what the runner serves."""
    for module, packing in products(model, weight_format):
        module.weight = nn.Parameter(packing.stored(module.weight).to(module.weight.dtype), requires_grad=False)


@contextmanager
def rounding_inputs(model: PreTrainedModel, weight_format: WeightFormat, rounding: Rounding) -> Iterator[None]:
    """Inside the context, the model rounds the inputs of its products as the runner does."""

    def hook_of(bits: int) -> Any:
        return lambda module, inputs: (rounding(inputs[0], bits),)

    hooks = [
        module.register_forward_pre_hook(hook_of(packing.bits))
        for module, packing in products(model, weight_format)
        if packing.bits < 16
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def products(model: PreTrainedModel, weight_format: WeightFormat) -> Iterator[tuple[nn.Linear, Packing]]:
    """The linear layers of a model that the fused runner supports, and how each is held."""
    inner: Any = model.model
    for layer in inner.layers:
        for block in (layer.self_attn, layer.mlp):
            for module in block.children():
                if isinstance(module, nn.Linear):
                    yield module, weight_format.layers
    head: Any = model.lm_head
    yield head, weight_format.head

"""Packs weights as `native/source/product.h` reads them, and keeps alive what its structures point to."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specpair.models.large_pages import LargePages
from specpair.models.native_coarse import packed_bytes, packed_nibbles
from specpair.models.native_memory import padded
from specpair.models.native_structures import Product
from specpair.models.weight_format import Packing

PANEL = 32
"""Outputs of a panel of packed weights."""
GATE_WIDTH = PANEL // 2
FLOAT_WEIGHTS, HALF_WEIGHTS, HALF_WEIGHTS_AND_ROWS, BYTE_WEIGHTS, NIBBLE_WEIGHTS = range(5)


class NativePacker:
    """For one model, whose rows have one type. What it packed lives as long as it does."""

    def __init__(self, dtype: torch.dtype):
        self._dtype = dtype
        self._pages = LargePages()
        self._held: list[Any] = []

    def norm(self, weight: Tensor | None) -> int | None:
        """The address of a norm's weights in float32; None without any."""
        return None if weight is None else self.pointer(weight.detach().float())

    def product(self, weight: Tensor, packing: Packing, bias: Tensor | None = None) -> Product:
        """A product with weights `[out, in]`."""
        weight = weight.detach()
        if packing.bits < 16:
            return self._coarse_product(weight, bias, packing)
        narrow = weight if weight.dtype == torch.bfloat16 else narrowest(weight)
        kind = FLOAT_WEIGHTS if narrow.dtype != torch.bfloat16 else HALF_WEIGHTS
        if self._dtype == torch.bfloat16:
            kind = HALF_WEIGHTS_AND_ROWS
        return Product(
            weights=self.pointer(panels(narrow)),
            bias=self._bias(bias),
            ins=weight.size(1),
            outs=weight.size(0),
            kind=kind,
        )

    def _coarse_product(self, weight: Tensor, bias: Tensor | None, packing: Packing) -> Product:
        packed = (packed_bytes if packing.bits == 8 else packed_nibbles)(weight)
        return Product(
            weights=self.pointer(packed.weights),
            bias=self._bias(bias),
            ins=weight.size(1),
            outs=weight.size(0),
            kind=BYTE_WEIGHTS if packing.bits == 8 else NIBBLE_WEIGHTS,
            scales=None if packed.scales is None else self.pointer(packed.scales),
            is_bf16=self._dtype == torch.bfloat16,
        )

    def _bias(self, bias: Tensor | None) -> int | None:
        """In whole panels."""
        return None if bias is None else self.pointer(F.pad(bias.detach().float(), (0, -len(bias) % PANEL)))

    def pointer(self, tensor: Tensor) -> int:
        """The address of a copy of its numbers, one after the other, in large pages."""
        held = self._pages.copy(tensor)
        self.hold(held)
        return held.data_ptr()

    def hold(self, owner: Any) -> None:
        self._held.append(owner)


def panels(weight: Tensor) -> Tensor:
    """`[out, in]` as `source/product.h` reads it: panels of 32 outputs, padded with 0."""
    outs, ins = weight.shape
    whole = F.pad(weight, (0, 0, 0, padded(outs, PANEL) - outs))
    if weight.dtype == torch.bfloat16:
        return whole.view(-1, PANEL, ins // 2, 2).transpose(1, 2).contiguous()
    return whole.view(-1, PANEL, ins).transpose(1, 2).contiguous()


def gate_and_up(gate: Tensor, up: Tensor) -> Tensor:
    """Half a panel of gate, half a panel of up, and so on: a panel holds what is multiplied."""
    size = padded(len(gate), GATE_WIDTH)
    halves = [F.pad(one, (0, 0, 0, size - len(one))).view(-1, GATE_WIDTH, one.size(1)) for one in (gate, up)]
    return torch.stack(halves, 1).view(2 * size, gate.size(1))


def widened(weight: Tensor, multiple: int) -> Tensor:
    """`[out, in]` with inputs padded by zeros to a multiple."""
    return F.pad(weight, (0, padded(weight.size(1), multiple) - weight.size(1)))


def narrowest(weight: Tensor) -> Tensor:
    """As bf16 if that loses nothing, else float32."""
    narrow = weight.bfloat16()
    return narrow if torch.equal(narrow.to(weight.dtype), weight) else weight.float()

"""What a pass does in each layer besides attention, by torch's operators.

`specpair.models.kernel_operations` does the same on a GPU with fewer kernels.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specpair.caches.attention import Variant
from specpair.models.captured_rows import DeviceRows


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """The weights of one decoder layer. Those of queries, keys and values are joined, and those of gates and what they
    let through."""

    query_key_value: Tensor
    bias: Tensor | None
    head_norms: tuple[Tensor, Tensor] | None
    """Of queries and keys."""
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    variant: Variant


@dataclass(frozen=True, kw_only=True, eq=False)
class Shared:
    """What all layers share."""

    epsilon: float
    """Of all norms."""
    cosines: Tensor
    """`[positions, size]`, as `sines`."""
    sines: Tensor
    """The first half of a row is negated, as the second half, which comes to its place by a roll, is subtracted."""
    head: Tensor
    head_bias: Tensor | None


class RowOperations(Protocol):
    """The operations of one pass. Hidden states and what a norm makes of them are `[rows, hidden]`."""

    def normalise(self, hidden: Tensor, norm: Tensor) -> Tensor:
        """RMSNorm."""
        ...

    def project(self, layer: Layer, normal: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Rotated queries `[rows, heads, size]`; keys and values go to the slots of the rows in `keys` and `values`
        `[slots, key heads, size]`."""
        ...

    def add_attended(self, layer: Layer, hidden: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states with what attention found, `[rows, heads, size]`; and normalised for the MLP."""
        ...

    def add_transformed(self, layer: Layer, hidden: Tensor, normal: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states with what the MLP makes of `normal`; and normalised by the next `norm`."""
        ...

    def logits(self, normal: Tensor) -> Tensor:
        """float32 `[rows, vocabulary]`."""
        ...


class RowOperationsKind(Protocol):
    """A way to do them."""

    def __call__(self, rows: DeviceRows, shared: Shared) -> RowOperations:
        """Prepared once a pass, on the device alone."""
        ...


class TorchOperations:
    """For any number of rows on any device."""

    def __init__(self, rows: DeviceRows, shared: Shared):
        self._shared = shared
        self._slots = rows.slots
        self._cosine = shared.cosines.index_select(0, rows.positions)[:, None]
        self._sine = shared.sines.index_select(0, rows.positions)[:, None]

    def normalise(self, hidden: Tensor, norm: Tensor) -> Tensor:
        return F.rms_norm(hidden, norm.shape, norm, self._shared.epsilon)

    def project(self, layer: Layer, normal: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        _, key_heads, size = keys.shape
        by_head = F.linear(normal, layer.query_key_value, layer.bias).unflatten(1, (-1, size))
        heads = by_head.size(1) - 2 * key_heads
        turned, value = by_head.split([heads + key_heads, key_heads], dim=1)
        if layer.head_norms is not None:
            parts = turned.split([heads, key_heads], dim=1)
            turned = torch.cat([self.normalise(*pair) for pair in zip(parts, layer.head_norms, strict=True)], dim=1)
        turned = torch.addcmul(turned * self._cosine, turned.roll(size // 2, -1), self._sine)
        query, key = turned.split([heads, key_heads], dim=1)
        keys.index_copy_(0, self._slots, key)
        values.index_copy_(0, self._slots, value)
        return query.contiguous()

    def add_attended(self, layer: Layer, hidden: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.addmm(hidden, attended.flatten(1), layer.output.T)
        return hidden, self.normalise(hidden, layer.mlp_norm)

    def add_transformed(self, layer: Layer, hidden: Tensor, normal: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = F.linear(normal, layer.gate_up).chunk(2, dim=1)
        hidden = torch.addmm(hidden, F.silu(gate).mul_(up), layer.down.T)
        return hidden, self.normalise(hidden, norm)

    def logits(self, normal: Tensor) -> Tensor:
        return F.linear(normal, self._shared.head, self._shared.head_bias).float()


def weight_of(module: Any) -> Tensor:
    """Of a norm or a product; contiguous, as kernels read it."""
    weight: Tensor = module.weight.detach()
    return weight.contiguous()

"""What a pass does in each layer besides attention, by the kernels of `specpair.kernels`."""

from torch import Tensor

from specpair.kernels.products import multiply, multiply_and_gate
from specpair.kernels.rotation_kernel import rotate_and_store
from specpair.kernels.sum_kernels import add_and_normalise
from specpair.models.captured_operations import Layer, Shared
from specpair.models.captured_rows import DeviceRows


class KernelOperations:
    """Seven kernels a layer, four of them products."""

    def __init__(self, rows: DeviceRows, shared: Shared):
        self._rows = rows
        self._shared = shared

    def normalise(self, hidden: Tensor, norm: Tensor) -> Tensor:
        return add_and_normalise(hidden, None, norm, self._shared.epsilon)[1]

    def project(self, layer: Layer, normal: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return rotate_and_store(
            multiply(normal, layer.query_key_value),
            layer.bias,
            self._rows.positions,
            self._rows.slots,
            (self._shared.cosines, self._shared.sines),
            layer.head_norms,
            self._shared.epsilon,
            keys,
            values,
        )

    def add_attended(self, layer: Layer, hidden: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        parts = multiply(attended.flatten(1), layer.output)
        return add_and_normalise(hidden, parts, layer.mlp_norm, self._shared.epsilon)

    def add_transformed(self, layer: Layer, hidden: Tensor, normal: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
        opened = multiply_and_gate(normal, layer.gate_up)
        return add_and_normalise(hidden, multiply(opened, layer.down), norm, self._shared.epsilon)

    def logits(self, normal: Tensor) -> Tensor:
        parts = multiply(normal, self._shared.head)
        logits = parts[0].float() if len(parts) == 1 else parts.sum(0)
        return logits if self._shared.head_bias is None else logits + self._shared.head_bias

"""A run of every kernel with a row of ones: what a machine cannot compile or start fails here, not in a request."""

import torch

from specpair.kernels.attention_kernel import attend
from specpair.kernels.linear_kernel import multiply
from specpair.kernels.rotation_kernel import rotate_and_store
from specpair.kernels.sum_kernels import add_and_normalise, open_gates

SIZE = 64
"""Of a head, and of hidden states."""
EPSILON = 1e-6


def run(device: torch.device, dtype: torch.dtype, block_size: int) -> None:
    """Raises whatever went wrong, also if a result is not what it must be."""
    row, zero = torch.ones(1, SIZE, dtype=dtype, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    weight = torch.ones(3 * SIZE, SIZE, dtype=dtype, device=device) / SIZE
    keys, values = torch.zeros(2, block_size, 1, SIZE, dtype=dtype, device=device).unbind()
    tables = torch.zeros(1, 1, dtype=torch.int32, device=device)
    hidden, normal = add_and_normalise(row, None, row[0], EPSILON)
    parts = multiply(normal, weight)
    query = rotate_and_store(parts, None, zero, zero, (row, 0 * row), None, EPSILON, keys, values)
    attended = attend(query, keys, values, tables, zero, block_size=block_size, scale=1.0, window=None).flatten(1)
    gated = open_gates(multiply(attended, weight[: 2 * SIZE]), dtype)
    found, _ = add_and_normalise(hidden, multiply(gated, weight[:SIZE]), row[0], EPSILON)
    expected = 1 + torch.nn.functional.silu(row.float())
    if not torch.allclose(found.float(), expected, rtol=0.02):
        raise RuntimeError(f"kernels computed {found[0, 0].item()} instead of {expected[0, 0].item()}")

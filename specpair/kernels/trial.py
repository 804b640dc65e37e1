"""A run of every kernel with some rows: what a machine cannot compile or start fails here, not in a request, and so
does what a compiler arranges in another way than a kernel expects."""

import torch
import torch.nn.functional as F

from specpair.kernels.attention_kernel import attend
from specpair.kernels.products import multiply, multiply_and_gate
from specpair.kernels.rotation_kernel import rotate_and_store
from specpair.kernels.sum_kernels import add_and_normalise

SIZE = 64
"""Of a head, and of hidden states."""
ROWS = (1, 3, 12)
EPSILON = 1e-6
TOLERANCE = 0.03


def run(device: torch.device, dtype: torch.dtype, block_size: int) -> None:
    """Raises whatever went wrong, also if a result is not what it must be."""
    generator = torch.Generator().manual_seed(0)
    for row_count in ROWS:
        rows, weight = (
            torch.randn(count, SIZE, generator=generator).to(device, dtype) for count in (row_count, 6 * SIZE)
        )
        check(rows, weight / SIZE**0.5, block_size)


def check(rows: torch.Tensor, weight: torch.Tensor, block_size: int) -> None:
    """Each row is the first of a sequence, so it attends to itself alone, and nothing is rotated."""
    norm = torch.ones_like(rows[0])
    projection, gates, down = weight.split([3 * SIZE, 2 * SIZE, SIZE])
    places = torch.arange(len(rows), device=rows.device)
    keys, values = torch.zeros(2, len(rows) * block_size, 1, SIZE, dtype=rows.dtype, device=rows.device).unbind()
    hidden, normal = add_and_normalise(rows, None, norm, EPSILON)
    parts, slots, first = multiply(normal, projection), places * block_size, 0 * places
    turn = norm[None], 0 * norm[None]
    query = rotate_and_store(parts, None, first, slots, turn, None, EPSILON, keys, values)
    tables = places[:, None].int()
    attended = attend(query, keys, values, tables, first, block_size=block_size, scale=1.0, window=None).flatten(1)
    found, _ = add_and_normalise(hidden, multiply(multiply_and_gate(attended, gates), down), norm, EPSILON)
    gate, passed = F.linear(F.linear(normal.float(), projection[2 * SIZE :].float()), gates.float()).chunk(2, 1)
    expected = rows.float() + F.linear(F.silu(gate) * passed, down.float())
    error = float((found.float() - expected).abs().max() / expected.abs().max())
    if not error <= TOLERANCE:
        raise RuntimeError(f"kernels are {error:.2g} of the largest number off")

"""A run of every kernel of a pass with some rows: what a machine cannot compile or start fails here, not in a request,
and so does what a compiler arranges in another way than a kernel expects."""

import torch
import torch.nn.functional as F
from torch import Tensor

from specpair.kernels import linear_kernel
from specpair.kernels.attention_kernel import attend
from specpair.kernels.copy_kernel import copy
from specpair.kernels.products import multiply, multiply_and_gate
from specpair.kernels.rotation_kernel import rotate_and_store
from specpair.kernels.sum_kernels import add_and_normalise

SIZE = 64
"""Of a head, and of hidden states."""
ROWS = (1, 3, 12)
EPSILON = 1e-6
TOLERANCE = 0.03
DEEP = (12, 4256)
"""Rows and columns of a weight whose product is divided in every way: among warps, steps and parts, unevenly."""
COPIED = 3000


def run(device: torch.device, dtype: torch.dtype, block_size: int) -> None:
    """Raises whatever went wrong, also if a result is not what it must be."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    for row_count in ROWS:
        check_layer(random(row_count, SIZE), random(6 * SIZE, SIZE) / SIZE**0.5, block_size)
    rows, weight = random(3, DEEP[1]), random(*DEEP)
    for kernel in (multiply, linear_kernel.multiply):
        compare(kernel(rows, weight).float().sum(0), F.linear(rows.float(), weight.float()))
    check_copy(device)


def check_layer(rows: Tensor, weight: Tensor, block_size: int) -> None:
    """Each row is the first of a sequence, so it attends to itself alone, and nothing is rotated."""
    places = torch.arange(len(rows), device=rows.device)
    slots, first, tables = places * block_size, 0 * places, places[:, None].int()  # kernels read them before they wait
    norm = torch.ones_like(rows[0])
    turn = norm[None], 0 * norm[None]
    keys, values = torch.zeros(2, len(rows) * block_size, 1, SIZE, dtype=rows.dtype, device=rows.device).unbind()
    projection, gates, down = weight.split([3 * SIZE, 2 * SIZE, SIZE])
    hidden, normal = add_and_normalise(rows, None, norm, EPSILON)
    parts = multiply(normal, projection)
    query = rotate_and_store(parts, None, first, slots, turn, None, EPSILON, keys, values)
    attended = attend(query, keys, values, tables, first, block_size=block_size, scale=1.0, window=None).flatten(1)
    found, _ = add_and_normalise(hidden, multiply(multiply_and_gate(attended, gates), down), norm, EPSILON)
    gate, passed = F.linear(F.linear(normal.float(), projection[2 * SIZE :].float()), gates.float()).chunk(2, 1)
    compare(found.float(), rows.float() + F.linear(F.silu(gate) * passed, down.float()))


def check_copy(device: torch.device) -> None:
    """Twice, from memory that the host has written anew."""
    source = torch.zeros(COPIED, dtype=torch.int64, pin_memory=device.type == "cuda")
    target = torch.zeros_like(source, device=device)
    for number in (1, 2):
        source.fill_(number)
        copy(source, target)
        compare(target.cpu().float(), source.float())


def compare(found: Tensor, expected: Tensor) -> None:
    error = float((found - expected).abs().max() / expected.abs().max())
    if not error <= TOLERANCE:
        raise RuntimeError(f"kernels are {error:.2g} of the largest number off")

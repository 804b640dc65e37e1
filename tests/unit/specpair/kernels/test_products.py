"""Products by the kernels for a GPU, by triton's interpreter on CPU tensors, against torch."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytestmark = pytest.mark.needs("triton")

HALVES = [torch.float16, torch.bfloat16]
SHAPES = [(1, 64, 48), (1, 2048, 33), (5, 2048, 20), (6, 704, 9), (3, 1536, 70), (8, 4096, 16), (7, 96, 40)]
"""Rows, depth and width; also where depth or width is no multiple of a tile's."""


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def assert_product(parts: Tensor, x: Tensor, weight: Tensor) -> None:
    torch.testing.assert_close(parts.float().sum(0), F.linear(x.float(), weight.float()), atol=1e-3, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize(("rows", "depth", "width"), [*SHAPES[:5], (6, 700, 9)])
def test_parts_in_any_type_add_up_to_a_product(rows: int, depth: int, width: int, dtype: torch.dtype) -> None:
    from specpair.kernels.linear_kernel import multiply

    x, weight = random(rows, depth, dtype=dtype), random(width, depth, dtype=dtype)
    parts = multiply(x, weight)
    assert parts.dtype == torch.float32
    assert_product(parts, x, weight)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("rows", "depth", "width"), SHAPES)
def test_parts_on_tensor_cores_add_up_to_a_product(rows: int, depth: int, width: int, dtype: torch.dtype) -> None:
    from specpair.kernels.tensor_core_kernel import can_multiply, multiply

    x, weight = random(rows, depth, dtype=dtype), random(width, depth, dtype=dtype)
    assert can_multiply(x, weight)
    assert_product(multiply(x, weight), x, weight)


@pytest.mark.slow
@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("tiles", [1, 2])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_product_is_the_same_however_it_is_divided(warps: int, tiles: int, parts: int) -> None:
    """With more steps than are asked for ahead, and with a depth that the warps do not divide evenly."""
    from specpair.kernels.tensor_core_kernel import STEP, Plan, multiply

    x, weight = random(8, 704, dtype=torch.bfloat16), random(50, 704, dtype=torch.bfloat16)
    steps = -(-704 // (STEP * warps * parts))
    found = multiply(x, weight, Plan(warps, steps, 2, tiles, parts))
    assert found.shape == (parts, 8, 50)
    assert_product(found, x, weight)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("rows", "depth", "width"), SHAPES)
def test_gates_are_opened_inside_a_product(rows: int, depth: int, width: int, dtype: torch.dtype) -> None:
    from specpair.kernels.tensor_core_kernel import multiply_and_gate

    x, weight = random(rows, depth, dtype=dtype), random(2 * width, depth, dtype=dtype) / depth**0.5
    gate, passed = F.linear(x.float(), weight.float()).chunk(2, 1)
    torch.testing.assert_close(multiply_and_gate(x, weight).float(), F.silu(gate) * passed, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_of_a_product_does_not_depend_on_the_others(dtype: torch.dtype) -> None:
    from specpair.kernels.products import multiply, multiply_and_gate

    x, weight = random(5, 512, dtype=dtype), random(24, 512, dtype=dtype) / 16
    others = torch.cat([torch.full((4, 512), torch.nan), x[4:]]).to(dtype)
    assert torch.equal(multiply(others, weight)[:, 4], multiply(x, weight)[:, 4])
    assert torch.equal(multiply_and_gate(others, weight)[4], multiply_and_gate(x, weight)[4])


FEW, MORE, MOST = 6, 8, 9
"""Rows that every kernel takes, that tensor cores alone take, and that none takes."""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, FEW, MORE, MOST])
@pytest.mark.parametrize("depth", [64, 50])
@pytest.mark.parametrize("is_moved", [False, True])
def test_products_go_to_the_kernel_that_takes_them(
    rows: int, depth: int, dtype: torch.dtype, is_moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensor cores take no other type, no depth that is no multiple of a step's, and no rows that begin at an odd
    place; torch gets what has more rows than the other kernel takes."""
    from specpair.kernels import linear_kernel, products, tensor_core_kernel

    takers: list[tuple[ModuleType, str]] = []
    note_calls(linear_kernel, "multiply", takers, monkeypatch)
    for name in ("multiply", "multiply_and_gate"):
        note_calls(tensor_core_kernel, name, takers, monkeypatch)
    x, weight = random(rows, depth, dtype=dtype), random(16, depth, dtype=dtype) / depth**0.5
    weight = moved(weight) if is_moved else weight
    assert_product(products.multiply(x, weight), x, weight)
    found = products.multiply_and_gate(x, weight)
    assert found.dtype == dtype
    gate, passed = F.linear(x.float(), weight.float()).chunk(2, 1)
    torch.testing.assert_close(found.float(), F.silu(gate) * passed, atol=1e-2, rtol=2e-2)
    if dtype == torch.bfloat16 and rows <= MORE and depth == 64 and not is_moved:
        assert takers == [(tensor_core_kernel, "multiply"), (tensor_core_kernel, "multiply_and_gate")]
    else:
        assert takers == ([(linear_kernel, "multiply")] * 2 if rows <= FEW else [])


def note_calls(
    kernel: ModuleType, name: str, takers: list[tuple[ModuleType, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Callable[[Tensor, Tensor], Tensor] = getattr(kernel, name)

    def noting(x: Tensor, weight: Tensor) -> Tensor:
        takers.append((kernel, name))
        return run(x, weight)

    monkeypatch.setattr(kernel, name, noting)


def test_tensor_cores_refuse_what_their_kernel_cannot_read() -> None:
    from specpair.kernels.tensor_core_kernel import can_multiply

    x, weight = random(8, 64, dtype=torch.bfloat16), random(16, 64, dtype=torch.bfloat16)
    assert can_multiply(x, weight)
    assert not can_multiply(x, moved(weight)) and not can_multiply(moved(x), weight), "sixteen bytes at once"
    assert not can_multiply(x.half(), weight) and not can_multiply(x, weight.half())
    assert can_multiply(x.half(), weight.half()) and not can_multiply(x.float(), weight.float())
    assert can_multiply(x[:1], weight) and not can_multiply(random(9, 64, dtype=torch.bfloat16), weight)
    for depth in (48, 50):
        assert not can_multiply(random(8, depth, dtype=torch.bfloat16), random(16, depth, dtype=torch.bfloat16))


def moved(weight: Tensor) -> Tensor:
    """The same, but eight bytes further in its memory."""
    longer = torch.empty(weight.numel() + 8, dtype=weight.dtype)
    placed = longer[8 // weight.element_size() :][: weight.numel()].view_as(weight)
    return placed.copy_(weight)


@pytest.mark.parametrize("depth", [64, 896, 2048, 3072, 4864, 8192, 14336, 53248])
@pytest.mark.parametrize("width", [128, 2048, 5120, 128256])
@pytest.mark.parametrize("is_gated", [False, True])
def test_a_plan_covers_all_of_a_product(width: int, depth: int, is_gated: bool) -> None:
    from specpair.kernels.tensor_core_kernel import STEP, plan_for

    plan = plan_for(width, depth, is_gated=is_gated)
    covered = plan.warps * plan.steps * plan.parts * STEP
    assert depth <= covered < depth + plan.warps * plan.parts * STEP
    assert plan.parts <= (1 if is_gated else 32) and plan.warps & (plan.warps - 1) == 0

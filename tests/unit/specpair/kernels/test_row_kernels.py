"""The kernels for a GPU by triton's interpreter, which runs the same code on CPU tensors, against torch."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytestmark = pytest.mark.needs("triton")

SIZE = 16
"""Of a head."""
KEY_HEADS = 2
HEADS = 6
EPSILON = 1e-5
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2}


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype = torch.float32) -> None:
    torch.testing.assert_close(actual.float(), expected.float(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("part_count", [1, 3])
def test_sums_go_on_to_the_norm_and_through_gates(part_count: int) -> None:
    from specpair.kernels.sum_kernels import add_and_normalise, open_gates

    hidden, parts, norm = random(3, 100), random(part_count, 3, 100), random(100)
    added, normal = add_and_normalise(hidden, parts, norm, EPSILON)
    assert_close(added, hidden + parts.sum(0))
    assert_close(normal, F.rms_norm(hidden + parts.sum(0), (100,), norm, EPSILON))
    assert add_and_normalise(hidden, None, norm, EPSILON)[0] is hidden
    assert_close(add_and_normalise(hidden, None, norm, EPSILON)[1], F.rms_norm(hidden, (100,), norm, EPSILON))
    gates = random(part_count, 3, 1400)
    gate, passed = gates.sum(0).chunk(2, 1)
    assert_close(open_gates(gates, torch.float32), F.silu(gate) * passed)


@pytest.mark.parametrize("has_norms", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_queries_and_keys_are_rotated_and_stored(has_bias: bool, has_norms: bool) -> None:
    from specpair.kernels.rotation_kernel import rotate_and_store

    rows, width = 4, (HEADS + 2 * KEY_HEADS) * SIZE
    parts, bias = random(2, rows, width), random(width) if has_bias else None
    norms = (random(SIZE), 1 + random(SIZE)) if has_norms else None
    positions, slots = torch.tensor([5, 0, 9, 9]), torch.tensor([3, 11, 0, 7])
    cosines, sines = random(10, SIZE), random(10, SIZE) + 1
    keys, values = torch.full((2, 12, KEY_HEADS, SIZE), torch.nan).unbind()
    query = rotate_and_store(parts, bias, positions, slots, (cosines, sines), norms, EPSILON, keys, values)

    projected = parts.sum(0) + (0 if bias is None else bias)
    turned, value = projected.view(rows, -1, SIZE).split([HEADS + KEY_HEADS, KEY_HEADS], 1)
    if norms is not None:
        asked, key = turned.split([HEADS, KEY_HEADS], 1)
        pairs = ((asked, norms[0]), (key, norms[1]))
        turned = torch.cat([F.rms_norm(part, (SIZE,), norm, EPSILON) for part, norm in pairs], 1)
    turned = turned * cosines[positions][:, None] + turned.roll(SIZE // 2, -1) * sines[positions][:, None]
    assert_close(query, turned[:, :HEADS])
    assert_close(keys[slots], turned[:, HEADS:])
    assert_close(values[slots], value)
    assert keys.isfinite().any(-1).any(-1).sum() == rows, "nothing else is written"


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("window", [None, 7, 200])
@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize("programs", [1, 512])
def test_a_row_attends_to_the_blocks_of_its_table(
    programs: int, block_size: int, window: int | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of several lengths, in one part and several steps, and in many parts; what they do not see was never
    written."""
    from specpair.kernels import attention_kernel
    from specpair.kernels.attention_kernel import attend, part_count

    monkeypatch.setattr(attention_kernel, "PROGRAMS", programs)
    lengths = [1, 40, 303, 7, 64]
    assert (part_count(len(lengths) * KEY_HEADS) > 1) == (programs > 1)
    query = random(len(lengths), HEADS, SIZE, dtype=dtype)
    tables, keys, values, expected = of_sequences(query, lengths, block_size, window, dtype)
    positions = torch.tensor(lengths) - 1

    def attended(rows: slice) -> Tensor:
        options: dict[str, Any] = {"block_size": block_size, "scale": 0.3, "window": window}
        return attend(query[rows], keys, values, tables[rows], positions[rows], **options)

    assert_close(attended(slice(None)), expected, dtype)
    assert_close(attended(slice(2, 3)), expected[2:3], dtype)


def of_sequences(
    query: Tensor, lengths: list[int], block_size: int, window: int | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Block tables, keys, values and what attention over them gives, in float32."""
    counts = [-(-length // block_size) for length in lengths]
    free = torch.randperm(sum(counts) + 1, generator=torch.Generator().manual_seed(0)).tolist()
    tables = torch.full((len(lengths), max(counts) + 2), free.pop(), dtype=torch.int32)
    keys, values = torch.full((2, (sum(counts) + 1) * block_size, KEY_HEADS, SIZE), torch.nan, dtype=dtype).unbind()
    expected: list[Tensor] = []
    for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        tables[row, :count] = torch.tensor([free.pop() for _ in range(count)])
        places = torch.arange(length)
        slots = tables[row, places // block_size].long() * block_size + places % block_size
        held = [random(length, KEY_HEADS, SIZE + add)[..., add:].to(dtype) for add in (0, 1)]
        keys[slots], values[slots] = held
        seen = slice(0 if window is None else max(0, length - window), length)
        key, value = (part[seen].float().repeat_interleave(HEADS // KEY_HEADS, 1) for part in held)
        weights = (torch.einsum("hd,nhd->hn", query[row].float(), key) * 0.3).softmax(-1)
        expected.append(torch.einsum("hn,nhd->hd", weights, value))
    return tables, keys, values, torch.stack(expected)


@pytest.mark.parametrize("count", [1, 1024, 3000])
def test_numbers_are_copied(count: int) -> None:
    from specpair.kernels.copy_kernel import copy

    source, target = torch.arange(count), torch.full((count + 1,), -1)
    copy(source, target[:count])
    assert torch.equal(target[:count], source) and target[count] == -1

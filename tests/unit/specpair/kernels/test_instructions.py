"""The instructions of tensor cores, whose emulation tests of products see on a CPU: the operands that they name, by the
fragments of `mma.m16n8k16` in the PTX ISA."""

import re

import numpy as np
import pytest

pytestmark = pytest.mark.needs("triton")

LANE = np.arange(32)
GROUP, PAIR = LANE // 4, LANE % 4 * 2
A_ROWS, A_COLUMNS = GROUP + np.array([[0], [8], [0], [8]]), PAIR + np.array([[0], [0], [8], [8]])
B_ROWS = PAIR + np.array([[0], [8]])
C_ROWS, C_COLUMNS = GROUP + np.array([[0], [0], [8], [8]]), PAIR + np.array([[0], [1], [0], [1]])


def run(ptx: str, names: dict[str, np.ndarray]) -> None:
    """Each operand is a register of all threads: two numbers `[lanes, 2]`, or a sum `[lanes]`."""
    for instruction in re.findall(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.\S+\s+([^;]+);", ptx):
        d, a, b, c = (re.split(r",\s*", operands) for operands in re.findall(r"{([^}]+)}", instruction))
        left, right, sums = np.empty((16, 16)), np.empty((16, 8)), np.empty((16, 8))
        for half in range(2):
            left[A_ROWS, A_COLUMNS + half] = [names[name][:, half] for name in a]
            right[B_ROWS + half, np.tile(GROUP, (2, 1))] = [names[name][:, half] for name in b]
        sums[C_ROWS, C_COLUMNS] = [names[name] for name in c]
        names.update(zip(d, (left @ right + sums)[C_ROWS, C_COLUMNS], strict=True))


@pytest.mark.parametrize("name", ["BFLOAT16", "FLOAT16"])
def test_the_operands_make_a_product(name: str) -> None:
    """Element `4 lane + j` of a warp is number `element % 16` of line `element // 16`, an integer of two columns."""
    from specpair.kernels import tensor_core_kernel

    ptx: str = getattr(tensor_core_kernel, name).value
    assert set(re.findall(r"\.(b?f16)\b", ptx)) == {"bf16" if name == "BFLOAT16" else "f16"}
    draw = np.random.default_rng(0)
    weight, x = draw.integers(-9, 9, (16, 32)).astype(float), draw.integers(-9, 9, (8, 32)).astype(float)
    before = draw.integers(-9, 9, (16, 8)).astype(float)
    names: dict[str, np.ndarray] = {}
    for first, lines in ((4, weight[:8]), (8, weight[8:]), (12, x)):
        names |= {f"${first + j}": lines.reshape(32, 4, 2)[:, j] for j in range(4)}
    names |= {f"${16 + j}": numbers for j, numbers in enumerate(before[C_ROWS, C_COLUMNS])}
    run(ptx, names)
    found = np.array([names[f"${j}"] for j in range(4)])
    assert np.array_equal(found, (weight @ x.T + before)[C_ROWS, C_COLUMNS])

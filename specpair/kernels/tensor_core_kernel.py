# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportMissingImports=false
# pyright: reportOperatorIssue=false
"""Products of a few rows with a large weight on the tensor cores, in 16 bits.

The instruction `mma.m16n8k16` multiplies sixteen rows by eight columns. Here its rows are rows of the weight, and
its columns up to eight rows of the input, so that few rows waste nothing. Each thread reads its part of the weight
straight into the registers from which the instruction takes it, sixteen bytes at a time; the order of the depth is
then not the instruction's, but it is the same for weight and input. All that a warp reads first is asked for before the
kernel waits for the one before it (`overlap`). The warps of a program divide the depth and add up at the end; programs
divide it too where the weight is small, and then whoever uses the product adds up their parts.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specpair.kernels.halves import first_half, second_half
from specpair.kernels.overlap import begin, overlaps

MOST_ROWS = 8
DTYPES = (torch.bfloat16, torch.float16)
AMPERE = (8, 0)
"""The compute capability that has the instruction."""
STEP = 32
"""Columns of the weight that a warp multiplies at once: two instructions."""
LINES = 16
"""Rows of the weight in a tile."""
ALIGNED = 16
"""Bytes that a thread reads at once."""

BFLOAT16: tl.constexpr = tl.constexpr("""{
.reg .f32 part<4>;
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    {part0, part1, part2, part3}, {$4, $8, $5, $9}, {$12, $13}, {$16, $17, $18, $19};
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    {$0, $1, $2, $3}, {$6, $10, $7, $11}, {$14, $15}, {part0, part1, part2, part3};
}""")
"""Of a thread: sums from `$0`; four integers of the weight's upper eight rows from `$4`, of its lower ones from `$8`
and of the input from `$12`; and the sums before, from `$16`."""
FLOAT16: tl.constexpr = tl.constexpr(BFLOAT16.value.replace("bf16", "f16"))
REGISTERS: tl.constexpr = tl.constexpr(",".join(["=f"] * 4 + ["r"] * 12 + ["f"] * 4))


class Plan(NamedTuple):
    """How the work of a product is divided."""

    warps: int
    """Of a program; they divide its part of the depth."""
    steps: int
    """Of a warp, one after the other."""
    ahead: int
    """Steps whose weights are asked for before they are needed."""
    tiles: int
    """Of a warp, one after the other."""
    parts: int
    """Of the depth, for programs of their own."""


@triton.jit
def _emulated(upper, lower, fed, total, WARPS: tl.constexpr, IS_BFLOAT16: tl.constexpr):
    """What the instructions do, for machines without them: element 16 g + 4 q + 2 h + i of a warp's sums is that of row
    g + 8 h of the weight and row 2 q + i of the input."""
    weight = tl.reshape(tl.join(upper, lower), (WARPS, 8, 16, 2, 1))
    rows = tl.permute(tl.reshape(fed, (WARPS, 8, 16)), (0, 2, 1))[:, None, :, None, :]
    product = first_half(weight, IS_BFLOAT16) * first_half(rows, IS_BFLOAT16)
    product += second_half(weight, IS_BFLOAT16) * second_half(rows, IS_BFLOAT16)
    added = tl.reshape(tl.sum(product, 2), (WARPS, 8, 2, 4, 2))
    return total + tl.reshape(tl.permute(added, (0, 1, 3, 2, 4)), (WARPS, 128))


@triton.jit
def _multiply_add(
    upper, lower, fed, total, WARPS: tl.constexpr, IS_BFLOAT16: tl.constexpr, HAS_TENSOR_CORES: tl.constexpr
):
    """The sums of sixteen rows of the weight and eight of the input over `STEP` columns, and `total`. The axes of all
    are warps and their 128 elements, four of each thread."""
    if HAS_TENSOR_CORES:
        return tl.inline_asm_elementwise(
            BFLOAT16 if IS_BFLOAT16 else FLOAT16,
            REGISTERS,
            [upper, lower, fed, total],
            dtype=tl.float32,
            is_pure=True,
            pack=4,
        )
    return _emulated(upper, lower, fed, total, WARPS, IS_BFLOAT16)


@triton.jit
def _read_weight(
    weight,
    places,
    line,
    step,
    tile,
    width,
    DEPTH: tl.constexpr,
    IS_EVEN: tl.constexpr,
    IS_GATED: tl.constexpr,
):
    """A tile's upper and lower eight rows at one step. The second tile of gates is what they let through."""
    lines = line if IS_GATED else line + tile * 16
    mask = lines < width if IS_EVEN else (lines < width) & (places + step * 16 < DEPTH)
    lower_mask = lines + 8 < width if IS_EVEN else (lines + 8 < width) & (places + step * 16 < DEPTH)
    row = lines.to(tl.int64) + tile * width if IS_GATED else lines.to(tl.int64)
    start = weight + row * DEPTH + step * 16
    upper = tl.load(start + places, mask=mask, other=0, eviction_policy="evict_first")
    lower = tl.load(start + 8 * DEPTH + places, mask=lower_mask, other=0, eviction_policy="evict_first")
    return upper, lower


@triton.jit(do_not_specialize=["row_count"])
def _multiply(
    x,
    weight,
    out,
    width,
    row_count,
    DEPTH: tl.constexpr,
    WARPS: tl.constexpr,
    STEPS: tl.constexpr,
    AHEAD: tl.constexpr,
    TILES: tl.constexpr,
    IS_GATED: tl.constexpr,
    IS_BFLOAT16: tl.constexpr,
    HAS_TENSOR_CORES: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Weight and input are integers of two numbers, `DEPTH` a row. A warp takes its tiles one after the other."""
    IS_EVEN: tl.constexpr = DEPTH % (WARPS * STEPS * 16) == 0
    element = tl.arange(0, 128)[None, :]
    part = tl.program_id(1)
    places = (part * WARPS + tl.arange(0, WARPS)[:, None]) * (STEPS * 16) + element % 16
    line = tl.broadcast_to(element // 16, (WARPS, 128))
    first = tl.program_id(0) * (16 if IS_GATED else 16 * TILES)
    held = ()
    for i in tl.static_range(AHEAD):
        step, tile = i % STEPS, i // STEPS
        held = held + _read_weight(weight, places, first + line, step, tile, width, DEPTH, IS_EVEN, IS_GATED)
    if OVERLAPS:
        begin()
    totals = ()
    total = tl.zeros((WARPS, 128), dtype=tl.float32)
    for i in tl.static_range(TILES * STEPS):
        mask = line < row_count if IS_EVEN else (line < row_count) & (places + i % STEPS * 16 < DEPTH)
        fed = tl.load(x + line * DEPTH + places + i % STEPS * 16, mask=mask, other=0)
        total = _multiply_add(held[2 * i], held[2 * i + 1], fed, total, WARPS, IS_BFLOAT16, HAS_TENSOR_CORES)
        if i + AHEAD < TILES * STEPS:
            step, tile = (i + AHEAD) % STEPS, (i + AHEAD) // STEPS
            held = held + _read_weight(weight, places, first + line, step, tile, width, DEPTH, IS_EVEN, IS_GATED)
        if i % STEPS == STEPS - 1:
            totals = totals + (tl.sum(total, 0),)  # noqa: RUF005 (the compiler knows no other way)
            total = tl.zeros((WARPS, 128), dtype=tl.float32)
    place = tl.arange(0, 128)
    column = first + place // 16 + place % 4 // 2 * 8
    row = place // 4 % 4 * 2 + place % 2
    target = out + (part * row_count + row).to(tl.int64) * width
    if IS_GATED:
        opened = (totals[0] / (1 + tl.exp(-totals[0])) * totals[1]).to(out.dtype.element_ty)
        tl.store(target + column, opened, mask=(row < row_count) & (column < width))
    else:
        for tile in tl.static_range(TILES):
            columns = column + tile * 16
            tl.store(target + columns, totals[tile], mask=(row < row_count) & (columns < width))


def can_multiply(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel takes these: few rows in 16 bits, on a device that has the instruction, and rows that begin
    where sixteen bytes can be read at once."""
    is_aligned = x.size(1) % STEP == 0 and not x.data_ptr() % ALIGNED and not weight.data_ptr() % ALIGNED
    is_known = x.dtype in DTYPES and x.dtype == weight.dtype and len(x) <= MOST_ROWS
    return is_known and is_aligned and has_instruction(x.device)


def has_instruction(device: torch.device) -> bool:
    """Also where the kernel is interpreted, on a CPU."""
    if device.type != "cuda":
        return True
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= AMPERE


def multiply(x: Tensor, weight: Tensor, plan: Plan | None = None) -> Tensor:
    """The parts of `x` `[rows, depth]` times the transpose of `weight` `[width, depth]`, for which `can_multiply` must
    be true: float32 `[parts, rows, width]`."""
    plan = plan or plan_for(len(weight), x.size(1), is_gated=False)
    out = torch.empty(plan.parts, len(x), len(weight), dtype=torch.float32, device=x.device)
    _start(x, weight, out, plan, is_gated=False)
    return out


def multiply_and_gate(x: Tensor, weight: Tensor, plan: Plan | None = None) -> Tensor:
    """SiLU of the product of `x` with the first half of the rows of `weight` times that with the second half: `[rows,
    half]`, in the type of `x`."""
    width = len(weight) // 2
    plan = plan or plan_for(width, x.size(1), is_gated=True)
    out = torch.empty(len(x), width, dtype=x.dtype, device=x.device)
    _start(x, weight, out, plan, is_gated=True)
    return out


def _start(x: Tensor, weight: Tensor, out: Tensor, plan: Plan, *, is_gated: bool) -> None:
    row_count, width = out.shape[-2:]
    assert (plan.parts - 1) * plan.warps * plan.steps * STEP < x.size(1), "a part lies beyond the rows"
    lines = LINES if is_gated else LINES * plan.tiles
    kernel: Any = _multiply
    kernel[triton.cdiv(width, lines), plan.parts](
        x.view(torch.int32),
        weight.view(torch.int32),
        out,
        width,
        row_count,
        DEPTH=x.size(1) // 2,
        WARPS=plan.warps,
        STEPS=plan.steps,
        AHEAD=min(plan.ahead, plan.steps * plan.tiles),
        TILES=plan.tiles,
        IS_GATED=is_gated,
        IS_BFLOAT16=x.dtype == torch.bfloat16,
        HAS_TENSOR_CORES=x.device.type == "cuda",
        OVERLAPS=overlaps(x.device),
        launch_pdl=overlaps(x.device),
        num_warps=plan.warps,
    )


AHEAD = 8
"""More would take registers that other warps of a multiprocessor need, fewer would leave its memory idle."""
SPLIT_WARPS, WHOLE_WARPS = 2, 4
"""Of a program that has a part of the depth, and of one that has all of it."""
MOST_GATED_STEPS = 48
"""Of a warp that opens gates: the compiler keeps the input of all its steps in registers for its second tile."""
MANY_TILES = 1024
"""With so many, a product keeps a large device busy without parts."""
FEW_PROGRAMS = 512
"""A product of fewer is divided into twice as many parts."""
FEW_DEEP_PROGRAMS = 160
"""The same of a deep one, each of whose programs reads more at once."""
MOST_STEPS = 16
"""Of a warp of a product in parts."""
DEEP_STEPS = 128
"""Steps of all warps from which a product is deep: few programs that read far ahead are faster than many parts."""


def plan_for(width: int, depth: int, *, is_gated: bool) -> Plan:
    """How to divide a product with a weight of so many rows and columns; with gates it has twice as many rows. As was
    fastest for products of 1 B and 3 B models on an H200."""
    step_count, tile_count = triton.cdiv(depth, STEP), triton.cdiv(width, LINES)
    if is_gated:
        warps = max(min(2, step_count), triton.next_power_of_2(triton.cdiv(step_count, MOST_GATED_STEPS)))
        return Plan(warps, triton.cdiv(step_count, warps), AHEAD, 2, 1)
    if tile_count >= MANY_TILES:
        warps = min(WHOLE_WARPS, triton.next_power_of_2(step_count))
        return Plan(warps, triton.cdiv(step_count, warps), AHEAD, 1, 1)
    if step_count > DEEP_STEPS:
        parts = triton.cdiv(step_count, 2 * MOST_STEPS * WHOLE_WARPS)
        if parts * tile_count < FEW_DEEP_PROGRAMS:
            parts *= 2
        return Plan(WHOLE_WARPS, triton.cdiv(step_count, WHOLE_WARPS * parts), 2 * AHEAD, 1, parts)
    warps = min(SPLIT_WARPS, step_count)
    parts = triton.next_power_of_2(triton.cdiv(step_count, warps * MOST_STEPS))
    if parts * tile_count < FEW_PROGRAMS:
        parts *= 2
    steps = triton.cdiv(step_count, warps * parts)
    return Plan(warps, steps, AHEAD, 1, triton.cdiv(step_count, warps * steps))

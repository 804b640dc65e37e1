# pyright: reportGeneralTypeIssues=false, reportMissingImports=false
"""The parts of a product, which whoever uses it adds up."""

import triton
import triton.language as tl


@triton.jit
def add_up(parts, places, mask, stride, PARTS: tl.constexpr):
    """The sum over the parts, in float32; parts are `stride` elements apart."""
    total = tl.load(parts + places, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(1, PARTS):
        total += tl.load(parts + part * stride + places, mask=mask, other=0.0).to(tl.float32)
    return total

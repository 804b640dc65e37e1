# pyright: reportGeneralTypeIssues=false, reportMissingImports=false
"""Integers of two numbers of 16 bits, which are read together, taken apart into float32."""

import triton
import triton.language as tl


@triton.jit
def first_half(packed, IS_BFLOAT16: tl.constexpr):
    """The first number of each two, which has the lower bits."""
    if IS_BFLOAT16:
        return (packed << 16).to(tl.float32, bitcast=True)
    return packed.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def second_half(packed, IS_BFLOAT16: tl.constexpr):
    """The second number of each two."""
    if IS_BFLOAT16:
        return (packed & -65536).to(tl.float32, bitcast=True)
    return (packed >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)

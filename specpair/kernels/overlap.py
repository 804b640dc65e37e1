# pyright: reportMissingImports=false
"""Kernels that begin while the one before them ends (programmatic dependent launch, from Hopper on).

Each kernel lets the next one start at once, and waits for the one before it before it reads what that has written. In
between it may ask for what no overlapping kernel writes: a product reads its part of the weight meanwhile. The rows of
a pass are written by its first kernel, which one of torch's separates from the rest.
"""

from functools import cache

import torch
import triton
from triton.language.extra import cuda

HOPPER = (9, 0)
"""The compute capability that this needs."""


@cache
def overlaps(device: torch.device) -> bool:
    """Whether kernels of this device begin while the one before them ends."""
    is_cuda = device.type == "cuda" and torch.version.hip is None
    return is_cuda and torch.cuda.get_device_capability(device) >= HOPPER


@triton.jit
def begin():
    """Lets the next kernel start, and waits for the one before. Every program of every kernel calls it, so that what a
    kernel has waited for includes all that came before."""
    cuda.gdc_launch_dependents()
    cuda.gdc_wait()

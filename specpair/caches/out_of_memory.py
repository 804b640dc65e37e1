"""Recognises out-of-memory errors."""

import torch

NO_MEMORY = ("DefaultCPUAllocator", "bad_alloc", "ALLOC_FAILED", "out of memory")
"""Parts of the texts of errors without their own class: torch on a CPU, C++, cuBLAS, the CUDA runtime."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether the error means that memory was short, so that a smaller pass may succeed."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in NO_MEMORY)

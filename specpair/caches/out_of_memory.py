"""How to know an error that says no more than that memory was short."""

import torch

NO_MEMORY = ("DefaultCPUAllocator", "bad_alloc", "ALLOC_FAILED", "out of memory")
"""In the texts of errors that have no class of their own: torch on a CPU, C++, cuBLAS, the CUDA runtime."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether a smaller pass may go through."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in NO_MEMORY)

"""What a failed pass means: memory that was short, a device that is lost, or one pass that went wrong."""

import torch

NO_MEMORY = ("DefaultCPUAllocator", "bad_alloc", "ALLOC_FAILED", "out of memory")
"""In the texts of errors that have no class of their own: torch on a CPU, C++, cuBLAS, the CUDA runtime."""
LOST_DEVICE = ("CUDA error", "CUDA driver error", "cuDNN error")


class DeviceLostError(Exception):
    """After a failed assertion or an illegal access on the device every later call fails; only a new process helps."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether a smaller pass may go through."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in NO_MEMORY)


def is_lost_device(error: Exception) -> bool:
    """Whether nothing that this process runs on the device will go through any more."""
    if is_out_of_memory(error) or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, torch.AcceleratorError) or str(error).startswith(LOST_DEVICE)


def check_device(error: Exception) -> None:
    """Raises DeviceLostError if that is what `error` says."""
    if is_lost_device(error):
        raise DeviceLostError from error

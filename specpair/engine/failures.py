"""What a failed pass means: memory that was short, a device that is lost, or one pass that went wrong."""

import torch

from specpair.caches.out_of_memory import is_out_of_memory

LOST_DEVICE = ("CUDA error", "CUDA driver error", "cuDNN error")


class DeviceLostError(Exception):
    """After a failed assertion or an illegal access on the device every later call fails; only a new process helps."""


def is_lost_device(error: Exception) -> bool:
    """Whether nothing that this process runs on the device will go through any more."""
    if is_out_of_memory(error) or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, torch.AcceleratorError) or str(error).startswith(LOST_DEVICE)


def check_device(error: Exception) -> None:
    """Raises DeviceLostError if that is what `error` says."""
    if is_lost_device(error):
        raise DeviceLostError from error

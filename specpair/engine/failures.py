"""Classifies failed forward passes: out of memory, a lost device, or a failure of this pass alone."""

import torch

from specpair.caches.out_of_memory import is_out_of_memory
from specpair.sharding.group import GroupLostError

LOST_DEVICE = ("CUDA error", "CUDA driver error", "cuDNN error")


class DeviceLostError(Exception):
    """A failed assertion or an illegal access on the device, or a lost rank of its group: every later call fails, and
    only a new process helps. Its text says what an operator should know beyond that."""


def is_lost_device(error: Exception) -> bool:
    """Whether every later call of this process on the device will fail."""
    if isinstance(error, GroupLostError):
        return True
    if is_out_of_memory(error) or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, torch.AcceleratorError) or str(error).startswith(LOST_DEVICE)


def check_device(error: Exception) -> None:
    """Raises DeviceLostError if `error` means that the device is lost."""
    if is_lost_device(error):
        raise DeviceLostError(str(error) if isinstance(error, GroupLostError) else "") from error

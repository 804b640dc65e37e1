"""How draft and target divide the memory of a shared GPU."""

from typing import NamedTuple

TARGET_SHARE = 0.8
"""The target is the larger one, and each token in its cache takes more."""
FIRST_GPU = "cuda:0"
ALIASES = {"auto": FIRST_GPU, "cuda": FIRST_GPU}
"""Without a GPU `auto` is the CPU, where shares have no effect."""


class GpuShares(NamedTuple):
    """Each process's share of a device's memory."""

    draft: float
    target: float


def gpu_shares(utilization: float, draft_device: str | None, target_device: str) -> GpuShares:
    """All memory for each process with its own device, else a share. Without a draft model `draft_device` is None.

    Devices have their names of the command line.
    """
    devices = {ALIASES.get(device, device) for device in (draft_device, target_device) if device is not None}
    if draft_device is None or len(devices) == 2 or "cpu" in devices:
        return GpuShares(utilization, utilization)
    target = round(utilization * TARGET_SHARE, 4)
    return GpuShares(round(utilization - target, 4), target)

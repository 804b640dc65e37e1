"""How draft and target divide the memory of a GPU that they share."""

from typing import NamedTuple

TARGET_SHARE = 0.8
"""The target is the larger one, and each token in its cache takes more."""
FIRST_GPU = "cuda:0"
ALIASES = {"auto": FIRST_GPU, "cuda": FIRST_GPU}
"""`auto` is a CPU where there is no GPU; shares mean nothing there."""


class GpuShares(NamedTuple):
    """Of a device's memory, for each process."""

    draft: float
    target: float


def gpu_shares(utilization: float, draft_device: str | None, target_device: str) -> GpuShares:
    """All of it for each on a device of its own, else divided. `draft_device` is None where no draft model is loaded.

    Devices are called as on the command line.
    """
    devices = {ALIASES.get(device, device) for device in (draft_device, target_device) if device is not None}
    if draft_device is None or len(devices) == 2 or "cpu" in devices:
        return GpuShares(utilization, utilization)
    target = round(utilization * TARGET_SHARE, 4)
    return GpuShares(round(utilization - target, 4), target)

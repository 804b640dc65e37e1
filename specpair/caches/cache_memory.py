"""How much memory the cache may take."""

import math
import os
from pathlib import Path

import torch

CPU_SHARE = 0.25
"""Of the free memory: others live on the machine as well."""
GPU_SHARE = 0.9
"""Of what a model leaves of its process's share of the device; the rest is for forward passes and CUDA itself."""
CGROUP = Path("/sys/fs/cgroup")


def cache_bytes(device: torch.device, gpu_memory_utilization: float) -> float:
    """Bytes that the cache may take, once the model is loaded."""
    if device.type != "cuda":
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return CPU_SHARE * max(min(free, free_in_group(CGROUP)), 0.0)
    torch.cuda.empty_cache()  # what loading needed for a moment is neither held nor taken
    free, total = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device)
    return gpu_cache_bytes(total=total, free=free, held=held, utilization=gpu_memory_utilization)


def gpu_cache_bytes(*, total: float, free: float, held: float, utilization: float) -> float:
    """The cache's part of the share of a device that this process may use.

    All in bytes: the device's memory, what nobody uses of it, and what this process holds already, its model.
    """
    return GPU_SHARE * max(min(utilization * total - held, free), 0.0)


def free_in_group(folder: Path) -> float:
    """Bytes that a container's limit leaves; infinite without one."""
    try:
        limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return float(limit - used + int(statistics["inactive_file"]))  # files that were read can be dropped
    except (OSError, ValueError, KeyError):  # there is no such file, or it says `max`
        return math.inf

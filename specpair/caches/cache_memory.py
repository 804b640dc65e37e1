"""Chooses how much memory the cache may use."""

import math
import os
from pathlib import Path

import torch

CPU_SHARE = 0.25
"""Share of the free memory; the rest is for other processes on the machine."""
GPU_SHARE = 0.9
"""Share of what the model leaves of the process's share of the device; the rest is for forward passes and CUDA."""
CGROUP = Path("/sys/fs/cgroup")


def cache_bytes(device: torch.device, gpu_memory_utilization: float) -> float:
    """Bytes that the cache may use, once the model is loaded."""
    if device.type != "cuda":
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return CPU_SHARE * max(min(free, free_in_group(CGROUP)), 0.0)
    torch.cuda.empty_cache()  # temporary memory of loading must not count as used
    free, total = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device)
    return gpu_cache_bytes(total=total, free=free, held=held, utilization=gpu_memory_utilization)


def gpu_cache_bytes(*, total: float, free: float, held: float, utilization: float) -> float:
    """The cache's part of this process's share of a device.

    In bytes: the device's `total` memory, its `free` memory, and what this process has `held` already, its model.
    """
    return GPU_SHARE * max(min(utilization * total - held, free), 0.0)


def free_in_group(folder: Path) -> float:
    """Bytes left under a container's memory limit; infinite without a limit."""
    try:
        limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return float(limit - used + int(statistics["inactive_file"]))  # the page cache can be dropped
    except (OSError, ValueError, KeyError):  # no such file, or its value is `max`
        return math.inf

"""The memory, descriptors and processor time of a process, from Linux's /proc."""

import os
from pathlib import Path


def resident_mib(pid: int) -> float:
    """Memory in use, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kib) / 1024


def descriptor_count(pid: int) -> int:
    """Open files and connections."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def processor_seconds(pid: int) -> float:
    """Processor time of all its threads since its start."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(after_name[11]), int(after_name[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")

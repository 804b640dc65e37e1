"""What a measurement ran on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe_machine() -> dict[str, object]:
    """Processor, cores and the versions that decide about speed."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "grpcio")},
    }


def processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()

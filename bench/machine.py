"""Describes the machine of a measurement."""

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

from specpair.native.builds import processor_features

ROOT = Path(__file__).parents[1]
VECTOR_UNITS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
"""What decides the speed of products, in Linux's names."""


def describe_machine() -> dict[str, object]:
    """Processor, vector units, cores, memory, GPUs, the versions that matter for speed, and the measured commit."""
    return {
        "processor": processor(),
        "vector_units": [unit for unit in VECTOR_UNITS if unit in processor_features()],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "gpus": said_by("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader").splitlines(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "system": platform.system(),
        "python": platform.python_version(),
        "python_loop_ms": round(python_loop_ms(), 2),
        **{name: version(name) for name in ("torch", "transformers", "grpcio")},
        "commit": said_by("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
    }


def python_loop_ms() -> float:
    """Milliseconds of a fixed loop, the best of several. Interpreters that were built without profile-guided
    optimisation take a third longer, and half of a small round is Python."""
    return 1000 * min(loop_seconds() for _ in range(5))


def loop_seconds() -> float:
    start, held, total = time.perf_counter(), dict[int, int](), 0
    for i in range(50_000):
        held[i & 255] = i
        total += len(held) ^ [i, total][0]
    return time.perf_counter() - start


def processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def said_by(*command: str) -> str:
    """The output of a command; empty if it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""

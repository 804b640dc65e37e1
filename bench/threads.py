"""The number of threads that a service uses for a model, so that peers get the same."""

import os

import torch

from specpair.engine_config import thread_count
from specpair.models.device_defaults import choose_threads


def wanted_threads() -> int | None:
    """The number in OMP_NUM_THREADS."""
    wanted = os.environ.get("OMP_NUM_THREADS")
    return None if wanted is None else thread_count(wanted)


def service_threads(parameter_count: int, device: torch.device) -> int:
    """The threads that `specpair serve` uses by default, with regard to OMP_NUM_THREADS."""
    return choose_threads(wanted_threads(), parameter_count, device)

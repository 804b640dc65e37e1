"""How many threads a service takes for a model, so that peers get as many."""

import os

import torch

from specpair.engine_config import thread_count
from specpair.models.device_defaults import choose_threads


def wanted_threads() -> int | None:
    """What OMP_NUM_THREADS asks for."""
    wanted = os.environ.get("OMP_NUM_THREADS")
    return None if wanted is None else thread_count(wanted)


def service_threads(parameter_count: int, device: torch.device) -> int:
    """The threads that `specpair serve` takes by itself, OMP_NUM_THREADS included."""
    return choose_threads(wanted_threads(), parameter_count, device)

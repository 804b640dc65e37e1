"""How many threads a model's products are shared among.

A product of a small model ends before a second thread has begun, and idle OpenMP threads wait by spinning: on a host
that draft, target and coordinator share, they take the processor from whoever has the next move.
"""

import torch

SMALL_MODEL = 20_000_000
"""Parameters below which one thread was the faster way, on two cores."""


def choose_threads(wanted: int | None, parameter_count: int, device: torch.device) -> int:
    """What is asked for, else one for a small model on a CPU and all cores for others."""
    if wanted is not None:
        return wanted
    is_small = device.type == "cpu" and parameter_count < SMALL_MODEL
    return 1 if is_small else torch.get_num_threads()

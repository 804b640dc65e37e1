"""Several processes that train one draft: each has its own conversations, all have the same gradients.

A process with one thread uses whatever time its core has left; threads of one process would wait for each other at each
product. `torchrun --nproc-per-node 2 -m models.smollm2 train` starts two; without it there is one.
"""

import os
from collections.abc import Iterable
from datetime import timedelta

import torch
import torch.distributed
from torch import Tensor

PATIENCE = timedelta(hours=2)
"""How long the others may be stopped or measure."""


class Together:
    """The group of processes, or the only one."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        if self.size > 1 and not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", timeout=PATIENCE)
        self.rank = torch.distributed.get_rank() if self.size > 1 else 0

    @property
    def first(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank == 0

    def average(self, parameters: Iterable[Tensor], seconds: float, tokens: int) -> tuple[float, int]:
        """Averages the gradients of all processes; returns their mean seconds and the sum of their tokens."""
        if self.size == 1:
            return seconds, tokens
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([*(g.flatten() for g in gradients), torch.tensor([seconds, float(tokens)])])
        torch.distributed.all_reduce(flat)
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient) / self.size)
            start += gradient.numel()
        return float(flat[-2]) / self.size, int(flat[-1])

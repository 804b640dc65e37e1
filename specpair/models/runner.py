"""What the engine asks of whoever runs a model."""

from typing import Protocol

import torch

from specpair.caches.cache import KeyValueCache
from specpair.models.batch import Batch, PassOutput


class Runner(Protocol):
    """One model and its cache: everything that happens on the device, short of sampling. Device thread only."""

    cache: KeyValueCache
    device: torch.device

    def forward(self, batch: Batch) -> PassOutput:
        """One pass. Raises NotSupportedError for trees that it does not run."""
        ...

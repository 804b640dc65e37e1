"""The interface of a model runner."""

from typing import Protocol, runtime_checkable

import torch

from specpair.caches.cache import KeyValueCache
from specpair.models.batch import Batch, PassOutput
from specpair.sequences.encoder_input import EncoderInput


class Runner(Protocol):
    """One model and its cache: everything on the device except sampling. Device thread only."""

    description: str
    """How forward passes run, for the log: begins with the choice of `--runner`."""
    no_trees: str
    """Why it runs no trees of tokens; empty if it does."""
    cache: KeyValueCache
    device: torch.device

    def forward(self, batch: Batch) -> PassOutput:
        """Runs one forward pass. Raises NotSupportedError for trees if the runner does not support them."""
        ...


@runtime_checkable
class EncodingRunner(Protocol):
    """A runner of a model with an encoder. Its batches have an input of it for each segment."""

    def encode(self, encoder_input: EncoderInput) -> None:
        """Runs the encoder, and sets `state` to what passes need of its output."""
        ...

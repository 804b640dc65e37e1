"""A model that borrows the embeddings and the tokenizer of another: a draft or a head of its target.

Its folder holds the other weights, in one file, and `embeddings_of` in its configuration says who lends: the name of a
target, or a path, absolute or from the folder.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from specpair.errors import ModelRefusedError
from specpair.models.assembled_model import assemble
from specpair.models.checkpoint import EMBEDDING, Checkpoint
from specpair.models.refusals import first_line

WEIGHTS = "model.safetensors"


class BorrowingCheckpoint:
    """The weights in `folder` together with the embeddings of `lender`."""

    def __init__(self, folder: Path, settings: Any, lender: Checkpoint):
        self._folder = folder
        self._settings = settings
        self._lender = lender

    def settings(self) -> Any:
        return self._settings

    def model(self, settings: Any, dtype: torch.dtype, device: torch.device, attention: str) -> PreTrainedModel:
        embedding = self._lender.embedding()
        wanted = (settings.vocab_size, settings.hidden_size)
        if embedding.shape != wanted:
            raise ModelRefusedError(f"{self._folder} borrows embeddings {wanted}, but is lent {tuple(embedding.shape)}")
        try:
            return assemble(settings, {EMBEDDING: embedding, **load_file(self._folder / WEIGHTS)}, dtype, attention)
        except ModelRefusedError as error:
            raise ModelRefusedError(f"{self._folder} cannot be served: {error.message}") from error
        except (OSError, ValueError, SafetensorError) as error:
            raise ModelRefusedError(f"{self._folder} cannot be loaded: {first_line(error)}") from error

    def tokenizer(self) -> Any:
        return self._lender.tokenizer()

    def embedding(self) -> Tensor:
        return self._lender.embedding()

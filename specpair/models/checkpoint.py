"""What a model is loaded from."""

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

LENDER = "embeddings_of"
"""Entry of a configuration: who lends the embeddings and the tokenizer."""
EMBEDDING = "model.embed_tokens.weight"
"""Name of the input embeddings in the models that lend and borrow them."""


class Checkpoint(Protocol):
    """A stored model, as transformers reads it. `settings` and `model` raise ModelRefusedError with the reason."""

    def settings(self) -> Any:
        """The configuration."""
        ...

    def model(self, settings: Any, dtype: torch.dtype, device: torch.device, attention: str) -> PreTrainedModel:
        """The model, on `device` or still on the CPU; `attention` is a name in transformers' attention interface."""
        ...

    def tokenizer(self) -> Any:
        """The tokenizer. Raises whatever transformers raises."""
        ...

    def embedding(self) -> Tensor:
        """The input embeddings `[vocabulary, hidden]`, for a model that borrows them. Raises ModelRefusedError."""
        ...

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
from transformers import AutoModelForCausalLM, PreTrainedModel

from specpair.errors import ModelRefusedError
from specpair.models.checkpoint import EMBEDDING, Checkpoint
from specpair.models.refusals import first_line

WEIGHTS = "model.safetensors"
HEAD = "lm_head.weight"


class BorrowingCheckpoint:
    """The weights in `folder` together with the embeddings of `lender`."""

    def __init__(self, folder: Path, settings: Any, lender: Checkpoint):
        self._folder = folder
        self._settings = settings
        self._lender = lender

    def settings(self) -> Any:
        return self._settings

    def model(self, settings: Any, dtype: torch.dtype, attention: str) -> PreTrainedModel:
        embedding = self._lender.embedding()
        wanted = (settings.vocab_size, settings.hidden_size)
        if embedding.shape != wanted:
            raise ModelRefusedError(f"{self._folder} borrows embeddings {wanted}, but is lent {tuple(embedding.shape)}")
        lent = {EMBEDDING: embedding} | ({HEAD: embedding} if settings.tie_word_embeddings else {})
        try:
            model = AutoModelForCausalLM.from_config(
                settings, dtype=dtype, attn_implementation=attention, trust_remote_code=False
            )
            loading = model.load_state_dict(lent | load_file(self._folder / WEIGHTS), strict=False)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise ModelRefusedError(f"{self._folder} cannot be loaded: {first_line(error)}") from error
        for problem, names in (("no", loading.missing_keys), ("a superfluous", loading.unexpected_keys)):
            if names:
                raise ModelRefusedError(f"{self._folder} has {problem} {names[0]}")
        return model

    def tokenizer(self) -> Any:
        return self._lender.tokenizer()

    def embedding(self) -> Tensor:
        return self._lender.embedding()

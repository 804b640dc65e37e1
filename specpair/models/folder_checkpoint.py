"""A model in transformers' format: a local folder or a Hugging Face id."""

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from specpair.errors import ModelRefusedError
from specpair.models.checkpoint import EMBEDDING, LENDER
from specpair.models.declared_layers import refuse_absent_layers
from specpair.models.hub import NOWHERE, refuse_unreachable
from specpair.models.refusals import first_line
from specpair.models.weights import read_weights


class FolderCheckpoint:
    """Safetensors only, no remote code."""

    def __init__(self, name: str):
        self._name = name

    def settings(self) -> Any:
        if (folder := Path(self._name)).is_dir():
            refuse_absent_layers(folder)
        refuse_unreachable(self._name)
        try:
            return AutoConfig.from_pretrained(self._name, trust_remote_code=False)
        except Exception as error:  # transformers checks fields in many ways, and computes with some before that
            hint = NOWHERE if not Path(self._name).exists() else "has no readable configuration"
            raise ModelRefusedError(f"{self._name} {hint}: {first_line(fault_of(error))}") from error

    def model(self, settings: Any, dtype: torch.dtype, device: torch.device, attention: str) -> PreTrainedModel:
        if hasattr(settings, LENDER):  # find_checkpoint sees to local folders
            raise ModelRefusedError(f"{self._name} borrows embeddings, which only a model in a local folder can")
        return read_weights(self._name, settings, dtype, device, attention)

    def tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(self._name, trust_remote_code=False)

    def embedding(self) -> Tensor:
        try:
            for file in sorted(Path(self._name).glob("*.safetensors")):
                with safe_open(file, framework="pt") as tensors:
                    names = tensors.keys()
                    if EMBEDDING in names:
                        return tensors.get_tensor(EMBEDDING)
        except (OSError, SafetensorError) as error:
            raise ModelRefusedError(f"{self._name} cannot be read: {first_line(error)}") from error
        raise ModelRefusedError(f"{self._name} has no {EMBEDDING} to lend")


def fault_of(error: BaseException) -> BaseException:
    """What is wrong with a field, where transformers says first which check of its own found it."""
    return error.__cause__ or error if isinstance(error, StrictDataclassError) else error

"""A model in a GGUF file, dequantised: from then on it is a model like any other."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specpair.errors import ModelRefusedError
from specpair.models.assembled_model import assemble
from specpair.models.gguf_header import read_header
from specpair.models.gguf_llama import family_settings, family_weights, is_family
from specpair.models.gguf_reader import alone, read_model, read_settings
from specpair.models.gguf_settings import complete_settings, refuse_endless_layers
from specpair.models.gguf_tensor import POSITION_FACTORS, read_tensor
from specpair.models.gguf_tokenizer import read_gguf_tokenizer
from specpair.models.refusals import first_line

EMBEDDING = "token_embd.weight"


class GgufCheckpoint:
    """Quantised weights are rounded to bfloat16, as most checkpoints are stored, unless `is_exact`.

    So all that a bfloat16 checkpoint gains is gained: half of the memory, and kernels that read 16 bits per weight.
    """

    def __init__(self, path: Path, *, is_exact: bool):
        self._path = path
        self._header = read_header(path)
        self._is_rounded = not is_exact

    def settings(self) -> Any:
        with self._refusing():
            refuse_endless_layers(self._header)
            settings = family_settings(self._header) if is_family(self._header) else read_settings(self._path)
            complete_settings(settings, self._header)
            return settings

    def model(self, settings: Any, dtype: torch.dtype, device: torch.device, attention: str) -> PreTrainedModel:
        stored = settings.dtype if self._is_rounded else dtype
        with self._refusing():
            if is_family(self._header):
                weights = family_weights(self._path, self._header, settings)
                model = assemble(settings, weights, stored, attention)
            else:
                model = read_model(self._path, self._header, settings, stored, attention)
            self._scale_positions(model)
        for weight in model.parameters():  # not the frequencies of positions, which bfloat16 would round
            weight.data = weight.data.to(dtype)
        return model

    def tokenizer(self) -> Any:
        with alone(self._path) as folder:
            return read_gguf_tokenizer(folder, self._header)

    def embedding(self) -> Tensor:
        with self._refusing():
            stored = self._header.tensors.get(EMBEDDING)
            if stored is None:
                raise ModelRefusedError(f"it has no {EMBEDDING} to lend")
            weights = read_tensor(self._path, stored)
        return weights.bfloat16() if self._is_rounded else weights

    def _scale_positions(self, model: PreTrainedModel) -> None:
        """Applies the file's factors to the rotary embedding, which transformers leaves out."""
        stored = self._header.tensors.get(POSITION_FACTORS)
        if stored is None:
            return
        rotary: Any = getattr(model.base_model, "rotary_emb", None)
        frequencies = getattr(rotary, "inv_freq", None)
        if frequencies is None or frequencies.numel() != stored.weight_count:
            raise ModelRefusedError(f"{type(model).__name__} has no place for its {POSITION_FACTORS}")
        frequencies.div_(read_tensor(self._path, stored))

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raises ModelRefusedError with the file's name for whatever is raised inside."""
        try:
            yield
        except ModelRefusedError as error:
            raise ModelRefusedError(f"{self._path} cannot be served: {error.message}") from error
        except Exception as error:  # what a library raises at a forged file could be anything
            raise ModelRefusedError(f"{self._path} cannot be read: {first_line(error)}") from error

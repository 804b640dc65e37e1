"""A model in a GGUF file, read by transformers and dequantised: from then on it is a model like any other."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, dequantize
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig, PreTrainedModel

from specpair.errors import ModelRefusedError
from specpair.models.gguf_header import StoredTensor, read_header
from specpair.models.gguf_settings import complete_settings, refuse_unread_weights
from specpair.models.gguf_tokenizer import read_gguf_tokenizer
from specpair.models.refusals import first_line

FILE = "model.gguf"
EMBEDDING = "token_embd.weight"
POSITION_FACTORS = "rope_freqs.weight"


class GgufCheckpoint:
    """Quantised weights are rounded to bfloat16, as most checkpoints are stored, unless `is_exact`.

    So all that a bfloat16 checkpoint gains is gained: half of the memory, and kernels that read 16 bits per weight.
    """

    def __init__(self, path: Path, *, is_exact: bool):
        self._path = path
        self._header = read_header(path)
        self._is_rounded = not is_exact

    def settings(self) -> Any:
        with self._refusing(), self._alone() as folder:
            settings = AutoConfig.from_pretrained(folder, gguf_file=FILE)
            complete_settings(settings, self._header)
            return settings

    def model(self, settings: Any, dtype: torch.dtype, attention: str) -> PreTrainedModel:
        with self._refusing(), self._alone() as folder, quiet():
            refuse_unread_weights(settings, self._header)
            model, loading = AutoModelForCausalLM.from_pretrained(
                folder,
                gguf_file=FILE,
                config=settings,
                dtype=settings.dtype if self._is_rounded else dtype,
                quantization_config=GgufConfig(dequantize=True),
                attn_implementation=attention,
                output_loading_info=True,
            )
            if missing := sorted(loading["missing_keys"]):
                raise ModelRefusedError(f"it has no {missing[0]}")
            self._scale_positions(model)
        return model.to(dtype)

    def tokenizer(self) -> Any:
        with self._alone() as folder:
            return read_gguf_tokenizer(folder, FILE, self._header)

    def embedding(self) -> Tensor:
        with self._refusing():
            stored = self._header.tensors.get(EMBEDDING)
            if stored is None:
                raise ModelRefusedError(f"it has no {EMBEDDING} to lend")
            weights = self._read(stored)
        return weights.bfloat16() if self._is_rounded else weights

    def _scale_positions(self, model: PreTrainedModel) -> None:
        """Divides the frequencies of the rotary embedding by the file's factors, which transformers leaves out. Llama 3
        has them."""
        stored = self._header.tensors.get(POSITION_FACTORS)
        if stored is None:
            return
        rotary: Any = getattr(model.base_model, "rotary_emb", None)
        frequencies = getattr(rotary, "inv_freq", None)
        if frequencies is None or frequencies.numel() != stored.weight_count:
            raise ModelRefusedError(f"{type(model).__name__} has no place for its {POSITION_FACTORS}")
        frequencies.div_(self._read(stored))

    def _read(self, stored: StoredTensor) -> Tensor:
        """A tensor's weights as float32."""
        data = np.memmap(self._path, mode="r", offset=stored.start, shape=(stored.byte_count,))
        if stored.type is GGMLQuantizationType.F32:
            return torch.from_numpy(data.view(np.float32).reshape(stored.shape).copy())
        return torch.from_numpy(dequantize(data.reshape(*stored.shape[:-1], -1), stored.type))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[str]:
        """A folder in which only this file is: transformers would also read what lies beside it."""
        with TemporaryDirectory() as folder:
            os.symlink(self._path.resolve(), Path(folder) / FILE)
            yield folder

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raises ModelRefusedError with the file's name for whatever is raised inside."""
        try:
            yield
        except ModelRefusedError as error:
            raise ModelRefusedError(f"{self._path} cannot be served: {error.message}") from error
        except Exception as error:  # what a library raises at a forged file could be anything
            raise ModelRefusedError(f"{self._path} cannot be read: {first_line(error)}") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the progress bars of the reader out of a log."""
    with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
        yield

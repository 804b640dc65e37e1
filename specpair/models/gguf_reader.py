"""Reads models of any architecture from GGUF files, by transformers' reader."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig, PreTrainedModel

from specpair.errors import ModelRefusedError
from specpair.models.gguf_header import GgufHeader
from specpair.models.gguf_settings import refuse_unread_weights

FILE = "model.gguf"


@contextlib.contextmanager
def alone(path: Path) -> Iterator[str]:
    """A folder in which only this file is, as `FILE`: transformers would also read what lies beside it."""
    with TemporaryDirectory() as folder:
        os.symlink(path.resolve(), Path(folder) / FILE)
        yield folder


def read_settings(path: Path) -> Any:
    """The configuration."""
    with alone(path) as folder:
        return AutoConfig.from_pretrained(folder, gguf_file=FILE)


def read_model(path: Path, header: GgufHeader, settings: Any, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """The model, dequantised. Raises ModelRefusedError if the file has other weights than the model."""
    refuse_unread_weights(settings, header)
    with alone(path) as folder, quiet():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=FILE,
            config=settings,
            dtype=dtype,
            quantization_config=GgufConfig(dequantize=True),
            attn_implementation=attention,
            output_loading_info=True,
        )
    model, loading = loaded
    if missing := sorted(loading["missing_keys"]):
        raise ModelRefusedError(f"it has no {missing[0]}")
    return model


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the progress bars of the reader out of a log."""
    with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
        yield

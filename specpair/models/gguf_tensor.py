"""Reads tensors of a GGUF file."""

from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, dequantize
from torch import Tensor

from specpair.models.gguf_header import StoredTensor

POSITION_FACTORS = "rope_freqs.weight"
"""By these factors the frequencies of the rotary embedding are divided. Llama 3 has them. They are no weights."""


def read_tensor(path: Path, stored: StoredTensor) -> Tensor:
    """The weights as float32."""
    data = np.memmap(path, mode="r", offset=stored.start, shape=(stored.byte_count,))
    if stored.type is GGMLQuantizationType.F32:
        return torch.from_numpy(data.view(np.float32).reshape(stored.shape).copy())
    return torch.from_numpy(dequantize(data.reshape(*stored.shape[:-1], -1), stored.type))

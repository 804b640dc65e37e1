"""The files of a head: what its configuration says, and its tensors."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from specpair.errors import ModelRefusedError
from specpair.models.refusals import first_line, is_finite

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "medusa_lm_head.safetensors")
PICKLES = (".pt", ".bin", ".pth", ".pkl", ".ckpt")


def read_config(folder: Path) -> dict[str, Any]:
    """Raises ModelRefusedError for a folder without a configuration."""
    try:
        fields = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelRefusedError(f"{folder / CONFIG} cannot be read: {type(error).__name__} {error}") from error
    if not isinstance(fields, dict):
        raise ModelRefusedError(f"{folder / CONFIG} cannot be read: it holds no object")
    return fields


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Raises ModelRefusedError for a folder whose weights are missing, are not numbers, or are pickled: to read those
    runs code."""
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        pickles = sorted(file.name for file in folder.glob("*") if file.suffix in PICKLES)
        if pickles:
            raise ModelRefusedError(f"{folder / pickles[0]} is pickled, which could run code; safetensors are read")
        raise ModelRefusedError(f"{folder} has no {WEIGHTS[0]}")
    try:
        found = load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelRefusedError(f"{path} cannot be loaded: {first_line(error)}") from error
    if (name := next((name for name, tensor in found.items() if not is_finite(tensor)), None)) is not None:
        raise ModelRefusedError(f"{path} cannot be served: {name} holds NaN or infinite weights")
    return found


def count_in(fields: dict[str, Any], name: str, most: int) -> int:
    """A number of the configuration from 1 to `most`. Raises ModelRefusedError for anything else."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ModelRefusedError(f"{name} is {value!r}; it must be from 1 to {most}")
    return value


def check_shapes(folder: Path, found: dict[str, Tensor], expected: dict[str, tuple[int, ...]]) -> None:
    """Raises ModelRefusedError for a tensor that is missing, superfluous, or of another shape than it must have."""
    if missing := sorted(expected.keys() - found.keys()):
        raise ModelRefusedError(f"{folder} has no {missing[0]}")
    if unknown := sorted(found.keys() - expected.keys()):
        raise ModelRefusedError(f"{folder} has {unknown[0]}, which is not supported")
    for name, shape in expected.items():
        if tuple(found[name].shape) != shape:
            raise ModelRefusedError(f"{folder}: {name} is {tuple(found[name].shape)}, and must be {shape}")

"""Compares the layers that a configuration names with the tensors of a folder, before anything is built.

Transformers lists the layers and builds them all before it misses a tensor: of a hundred thousand it would say so after
hours.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import CONFIG_MAPPING

from specpair.errors import ModelRefusedError

COUNT = "num_hidden_layers"
OF_DECODERS = ("num_decoder_layers", "decoder_layers")
"""Where an encoder has a number of its own, as in T5 and BART."""
TEXT = "text_config"
"""The part of a configuration that is about text, where others are about images or sound."""


def refuse_absent_layers(folder: Path) -> None:
    """Raises ModelRefusedError if config.json names more layers than the safetensors files have. What cannot be read
    here is left to transformers, which says why."""
    try:
        fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        names = tensor_names(folder)
    except (OSError, ValueError, SafetensorError):
        return
    if not isinstance(fields, dict) or not names:
        return
    most = layers_at_most(names)
    for field, count in declared(fields).items():
        if count > most:
            raise ModelRefusedError(
                f"{folder} cannot be loaded: {field} is {count}, but its tensors are of {most} layers"
            )


def tensor_names(folder: Path) -> list[str]:
    """Of all files, from their headers."""
    names = list[str]()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            names += tensors.keys()
    return names


def layers_at_most(names: list[str]) -> int:
    """How many layers the tensors can be of: the first number in a name is that of its layer. Where no name has a
    number, each may be of another layer."""
    numbers = [next(filter(str.isdecimal, name.split(".")), None) for name in names]
    return max((int(number) + 1 for number in numbers if number is not None), default=len(names))


def declared(fields: dict[str, Any]) -> dict[str, int]:
    """The numbers of layers by the names of their fields, which differ between models."""
    found = dict[str, int]()
    for part, prefix in ((fields, ""), (fields.get(TEXT), f"{TEXT}.")):
        if not isinstance(part, dict):
            continue
        for name in (*names_of_count(part.get("model_type")), *OF_DECODERS):
            count = part.get(name)
            if isinstance(count, int):
                found[prefix + name] = count
    return found


def names_of_count(model_type: Any) -> set[str]:
    """What a configuration of that type may call its number of layers."""
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        return {COUNT}
    return {COUNT, getattr(CONFIG_MAPPING[model_type], "attribute_map", {}).get(COUNT, COUNT)}

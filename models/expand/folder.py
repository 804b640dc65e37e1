"""Folders with a model: what is read from the source, and how the expansion is written."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig

from models.expand.shape import ExpansionError

SHARD_BYTES = 2**30


COMPANIONS = (
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "generation_config.json",
)


def read_config(folder: Path) -> Any:
    """The configuration of the model in `folder`. Raises ExpansionError if there is none."""
    if not (folder / "config.json").is_file():
        raise ExpansionError(f"{folder} is no folder with a model")
    return AutoConfig.from_pretrained(folder)


def read_weights(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ExpansionError(f"{folder} has no safetensors")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def write_weights(folder: Path, weights: Iterable[tuple[str, Tensor]]) -> int:
    """Saves the weights shard by shard as they come, so that no more than a shard is held; returns their bytes."""
    shards: list[list[str]] = []
    total = 0
    for shard in shards_of(weights):
        save_file(shard, folder / f"{len(shards)}.part", metadata={"format": "pt"})
        shards.append(list(shard))
        total += sum(map(byte_count, shard.values()))
    name_shards(folder, shards, total)
    return total


def shards_of(weights: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """The weights in groups of at most SHARD_BYTES, or of one that is larger."""
    held: dict[str, Tensor] = {}
    for name, tensor in weights:
        if held and sum(map(byte_count, held.values())) + byte_count(tensor) > SHARD_BYTES:
            yield held
            held = {}
        held[name] = tensor
    yield held


def byte_count(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def name_shards(folder: Path, shards: list[list[str]], total: int) -> None:
    """Gives the parts the names under which transformers looks for them."""
    if len(shards) == 1:
        (folder / "0.part").rename(folder / "model.safetensors")
        return
    places = {}
    for index, names in enumerate(shards):
        file = f"model-{index + 1:05}-of-{len(shards):05}.safetensors"
        (folder / f"{index}.part").rename(folder / file)
        places |= dict.fromkeys(names, file)
    index_file = folder / "model.safetensors.index.json"
    index_file.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": places}, indent=2) + "\n")


def companions(folder: Path) -> list[Path]:
    """The files beside the weights that the expansion shares: tokenizer, chat template, generation defaults."""
    return sorted({file for pattern in COMPANIONS for file in folder.glob(pattern)})

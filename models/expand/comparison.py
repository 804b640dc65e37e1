"""Whether an expansion computes what its source computes."""

from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from models.expand.folder import read_config
from models.expand.shape import ExpansionError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


TOLERANCE = 1e-3


TEXT = "def read_lines(path):\n    with open(path) as file:\n        return [line.rstrip() for line in file]\n"


RANDOM_TOKENS = 32


def compare(source: Path, expansion: Path, dtype: str) -> dict[str, float]:
    """The largest difference of logits over a short text and random tokens, computed in float32.

    The source's weights are first rounded to `dtype`. Raises ExpansionError above TOLERANCE, and if a new
    token has any probability.
    """
    ids = comparison_ids(source)
    expected, actual = logits(source, ids, DTYPES[dtype]), logits(expansion, ids, DTYPES[dtype])
    old_size = expected.shape[-1]
    new_mass = actual.softmax(-1)[:, old_size:].sum(-1).max().item()
    difference = (actual[:, :old_size] - expected).abs().max().item()
    if not difference <= TOLERANCE or new_mass != 0:
        raise ExpansionError(
            f"the expansion computes something else: its logits differ by up to {difference:.2g}"
            f" ({TOLERANCE:g} is tolerated), and its new tokens have the probability {new_mass:.2g}"
        )
    return {"largest_logit_difference": difference}


def comparison_ids(source: Path) -> Tensor:
    """`[1, length]`: a text if there is a tokenizer, and random tokens."""
    ids: list[int] = []
    if (source / "tokenizer.json").is_file():
        ids = AutoTokenizer.from_pretrained(source)(TEXT)["input_ids"]
    vocab_size = read_config(source).vocab_size
    drawn = torch.randint(vocab_size, (RANDOM_TOKENS,), generator=torch.Generator().manual_seed(0))
    return torch.cat([torch.tensor(ids, dtype=torch.long), drawn])[None]


@torch.inference_mode()
def logits(folder: Path, ids: Tensor, dtype: torch.dtype) -> Tensor:
    """`[length, vocabulary]` in float32, by weights that are rounded to `dtype`."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for parameter in cast(torch.nn.Module, model).parameters():
        parameter.copy_(parameter.to(dtype))
    return model(input_ids=ids, use_cache=False).logits[0]

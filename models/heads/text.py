"""What the heads learn from: the bundled pair's text, and the bundled target."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from models.corpus import encode, read_texts

MODELS = Path(__file__).parents[1]
BUNDLED = MODELS / "bundled"
WORK = MODELS / "work"


def load(name: str) -> LlamaForCausalLM:
    """The bundled `target` or `draft` in float32, not to be trained."""
    model = LlamaForCausalLM.from_pretrained(BUNDLED / name, dtype=torch.float32, attn_implementation="sdpa").eval()
    return model.requires_grad_(False)


def tokens(side: str) -> np.ndarray:
    """The token ids of a side, `train` or `validation`; made once and kept in `models/work`."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"{side}.npy"
    if not path.exists():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(BUNDLED / "target")
        for name, texts in zip(("train", "validation"), read_texts(), strict=True):
            np.save(WORK / f"{name}.npy", encode(tokenizer, texts))
    return np.load(path)


def windows(ids: np.ndarray, count: int, length: int, seed: int) -> Tensor:
    """Random windows `[count, length]`, the same ones for a seed."""
    starts = np.random.default_rng(seed).integers(0, len(ids) - length, size=count)
    return torch.from_numpy(np.stack([ids[start : start + length] for start in starts]).astype(np.int64))


@torch.inference_mode()
def states(target: LlamaForCausalLM, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The last hidden states `[rows, tokens, width]`, after the final norm, and the logits `[rows, tokens, ids]`."""
    hidden = target.model(input_ids=ids, use_cache=False).last_hidden_state
    return hidden, target.lm_head(hidden)

"""Medusa heads (arXiv 2401.10774): residual blocks over the last hidden state, then the output of the target."""

import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.heads import saving
from models.heads.distance import distance, rate
from models.heads.text import load, states, tokens, windows
from models.muon import Muon

HEADS = 4
BLOCKS = 2
LENGTH = 128
"""Tokens of a window."""


class Block(nn.Module):
    """One residual block, which begins as the identity."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


def new_heads(width: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Sequential(*[Block(width) for _ in range(BLOCKS)]) for _ in range(HEADS))


def train(minutes: float, folder: Path, rows: int = 10) -> None:
    """Trains from the start and writes the heads into `folder`."""
    torch.manual_seed(0)
    target, ids = load("target"), tokens("train")
    heads = new_heads(target.config.hidden_size)
    matrices = [p for p in heads.parameters() if p.ndim == 2]
    biases = [p for p in heads.parameters() if p.ndim == 1]
    made: list[torch.optim.Optimizer] = [Muon(matrices, lr=4e-3), torch.optim.AdamW(biases, lr=4e-3)]
    peaks = [group["lr"] for optimizer in made for group in optimizer.param_groups]
    began, step = time.process_time(), 0
    while (done := (time.process_time() - began) / (60 * minutes)) < 1:
        hidden, wanted = (part.clone() for part in states(target, windows(ids, rows, LENGTH, step)))
        losses = [
            distance(target.lm_head(head(hidden[:, :-ahead])).flatten(0, 1), wanted[:, ahead:].flatten(0, 1), done)
            for ahead, head in enumerate(heads, 1)
        ]
        torch.stack(losses).sum().backward()
        for optimizer, peak in zip(made, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * rate(done)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 25 == 1:
            print(
                f"{100 * done:4.0f} %  step {step}  " + "  ".join(f"{loss.item():.3f}" for loss in losses), flush=True
            )
    saving.medusa(heads, folder)
    print(f"{step} steps of {rows * LENGTH} tokens; saved {folder}")

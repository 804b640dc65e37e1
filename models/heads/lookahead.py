"""PaSS (arXiv 2311.13581): embeddings that follow the text and stand for tokens that are not known yet.

The i-th of them, i tokens after the last known one, is trained to give what the target gives there. Nothing else is
trained.
"""

import time
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from models.heads import saving
from models.heads.distance import distance, rate
from models.heads.text import load, states, tokens, windows

COUNT = 4
LENGTH = 96
PLACES = 24
"""Places of a window that look ahead in a step."""


def layout(places: Tensor, length: int, count: int) -> tuple[Tensor, Tensor]:
    """Positions `[tokens]` and the mask `[1, 1, tokens, tokens]`, which is added, of a window with `count` embeddings
    after each of the `places`: each sees the text up to its place and those before it."""
    after = places[:, None] + 1 + torch.arange(count)
    positions = torch.cat([torch.arange(length), after.flatten()])
    total = len(positions)
    sees = torch.zeros(total, total, dtype=torch.bool)
    sees[:length, :length] = torch.ones(length, length, dtype=torch.bool).tril()
    sees[length:, :length] = torch.arange(length) <= places.repeat_interleave(count)[:, None]
    own = torch.block_diag(*[torch.ones(count, count).tril()] * len(places)).bool()
    sees[length:, length:] = own
    return positions, torch.zeros(total, total).masked_fill(~sees, torch.finfo(torch.float32).min)[None, None]


def foresee(target: LlamaForCausalLM, ids: Tensor, ahead: Tensor, places: Tensor) -> Tensor:
    """Logits `[rows, places, embeddings, vocabulary]` of the embeddings `[embeddings, width]` after these places."""
    positions, mask = layout(places, ids.size(1), len(ahead))
    follow = ahead.repeat(len(places), 1).expand(len(ids), -1, -1)
    inputs = torch.cat([target.model.embed_tokens(ids), follow], 1)
    hidden = target.model(
        inputs_embeds=inputs, attention_mask=mask, position_ids=positions[None], use_cache=False
    ).last_hidden_state
    return target.lm_head(hidden[:, ids.size(1) :]).view(len(ids), len(places), len(ahead), -1)


def train(minutes: float, folder: Path, rows: int = 8) -> None:
    """Trains from the start and writes the embeddings into `folder`."""
    torch.manual_seed(0)
    target, ids = load("target"), tokens("train")
    embedding = target.model.embed_tokens.weight
    ahead = torch.nn.Parameter(embedding.mean(0).repeat(COUNT, 1) + 0.1 * embedding.std() * torch.randn(COUNT, 256))
    optimizer = torch.optim.AdamW([ahead], lr=0.02, betas=(0.9, 0.98), weight_decay=0.0)
    began, step = time.process_time(), 0
    while (done := (time.process_time() - began) / (60 * minutes)) < 1:
        window = windows(ids, rows, LENGTH, step)
        wanted = states(target, window)[1].clone()
        places = torch.randperm(LENGTH - COUNT - 8)[:PLACES].sort().values + 8
        found = foresee(target, window, ahead, places)
        losses = [
            distance(found[:, :, i].flatten(0, 1), wanted[:, places + 1 + i].flatten(0, 1), done) for i in range(COUNT)
        ]
        torch.stack(losses).sum().backward()
        optimizer.param_groups[0]["lr"] = 0.02 * rate(done)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 25 == 1:
            print(
                f"{100 * done:4.0f} %  step {step}  " + "  ".join(f"{loss.item():.3f}" for loss in losses), flush=True
            )
    saving.lookahead(ahead, folder)
    print(f"{step} steps of {rows * PLACES} places; saved {folder}")

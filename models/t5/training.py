"""Trains a T5 model on the generated task."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from models.t5.task import Pair, sentences
from models.t5.tokenizer import make_tokenizer

IGNORED = -100
RATE = 2e-3
WARMUP = 100
"""Steps; fewer in a short run."""
REPORT_EVERY = 100
HELD_OUT_SEED = 1_000_003


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The shape of a model, and how long it is trained."""

    shape: dict[str, Any]
    steps: int
    batch_size: int = 32
    dtype: torch.dtype = torch.float32
    """Of the saved weights."""


RECIPES = {
    "target": Recipe(
        shape={"d_model": 96, "d_ff": 256, "d_kv": 24, "num_heads": 4, "num_layers": 3, "num_decoder_layers": 3},
        steps=800,
        dtype=torch.bfloat16,
    ),
    "draft": Recipe(
        shape={"d_model": 32, "d_ff": 64, "d_kv": 16, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1},
        steps=1200,
    ),
}


def make_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> T5ForConditionalGeneration:
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "dropout_rate": 0.0,
        "relative_attention_num_buckets": 16,
        "relative_attention_max_distance": 32,
        "decoder_start_token_id": tokenizer.pad_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    torch.manual_seed(0)
    return T5ForConditionalGeneration(T5Config(**settings, **recipe.shape))


def train(recipe: Recipe, folder: Path, steps: int | None = None) -> float:
    """Trains a model and saves it with its tokenizer. Returns the loss on held-out sentences, in nats a token."""
    tokenizer = make_tokenizer()
    model = make_model(recipe, tokenizer)
    count, pairs = recipe.steps if steps is None else steps, sentences(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    for step in range(count):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) / max(min(WARMUP, count // 8), 1), 1.0, 1.05 - step / count)
        loss = loss_of(model, tokenizer, list(islice(pairs, recipe.batch_size)))
        optimizer.zero_grad()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if not step % REPORT_EVERY:
            print(f"step {step} of {count}: {loss.item():.3f} nats", flush=True)
    with torch.inference_mode():
        held_out = loss_of(model, tokenizer, list(islice(sentences(HELD_OUT_SEED), 256))).item()
    model.to(recipe.dtype).save_pretrained(folder)  # pyright: ignore[reportArgumentType]
    tokenizer.save_pretrained(folder)
    return held_out


def loss_of(model: T5ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, pairs: list[Pair]) -> Tensor:
    """Cross entropy of the translations, in nats a token."""
    padding: Any = tokenizer.pad_token_id
    source = padded(tokenizer, [pair.source for pair in pairs])
    labels = padded(tokenizer, [pair.translation for pair in pairs])
    shifted = torch.cat([torch.full((len(pairs), 1), padding), labels[:, :-1]], dim=1)
    logits = model(input_ids=source, attention_mask=source.ne(padding), decoder_input_ids=shifted).logits
    targets = labels.masked_fill(labels.eq(padding), IGNORED)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def padded(tokenizer: PreTrainedTokenizerFast, texts: list[list[str]]) -> Tensor:
    """`[texts, longest]`: their ids, each with the end of text after it, and padding."""
    ids: list[Any] = [tokenizer.convert_tokens_to_ids(text) for text in texts]
    rows = [[*row, tokenizer.eos_token_id] for row in ids]
    longest = max(map(len, rows))
    return torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])

"""How far a model with quantised weights is from its checkpoint, on a text written for this purpose.

The text is in no training set: half of it is English, half Python. It is short, since it is read at every load; the
figure tells one format from another, and a broken one from both.
"""

from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from specpair.caches.holding import Holding
from specpair.model_info import Divergence
from specpair.models.held_out_text import HELD_OUT_TEXT
from specpair.models.loading import LoadedModel
from specpair.models.runner import Runner
from specpair.models.self_check import plain_logits, run_chunks

LENGTH = 256
CHUNK = 64
"""Tokens of a forward pass."""


class HeldOut(NamedTuple):
    """What the checkpoint says of the text."""

    token_ids: list[int]
    logits: Tensor
    """`[tokens, vocabulary]`."""


def held_out_logits(loaded: LoadedModel) -> HeldOut | None:
    """The logits of the loaded model, whose weights are still those of the checkpoint; None without a tokenizer."""
    token_ids = held_out_tokens(loaded)
    return HeldOut(token_ids, plain_logits(loaded, torch.tensor(token_ids))) if token_ids else None


def measure(original: HeldOut, runner: Runner) -> Divergence:
    """How far the runner is from the checkpoint."""
    return divergence_of(original.logits, served_logits(runner, original.token_ids))


def held_out_tokens(loaded: LoadedModel) -> list[int]:
    """The text in the model's tokens, as many as fit, without those that it has no embedding for; none without a
    tokenizer."""
    files = loaded.facts.tokenizer
    if files is None:
        return []
    tokenizer = Tokenizer.from_str(files.tokenizer_json.decode())
    known = [token for token in tokenizer.encode(HELD_OUT_TEXT).ids if token < loaded.facts.vocab_size]
    return known[: min(LENGTH, loaded.facts.max_model_len)]


def served_logits(runner: Runner, token_ids: list[int]) -> Tensor:
    """`[tokens, vocabulary]` of one sequence."""
    holding: Holding = runner.cache.open([])
    try:
        chunks = [token_ids[start : start + CHUNK] for start in range(0, len(token_ids), CHUNK)]
        return torch.cat([run_chunks(runner, [holding], [chunk])[0] for chunk in chunks])
    finally:
        runner.cache.free(holding)


def divergence_of(original: Tensor, served: Tensor) -> Divergence:
    """The divergence between two models' logits `[tokens, vocabulary]` for the same text."""
    logprobs, others = original.log_softmax(-1), served.log_softmax(-1)
    terms = torch.where(logprobs.isneginf(), 0.0, logprobs.exp() * (logprobs - others))
    return Divergence(
        mean_kl=terms.sum(-1).mean().item(),
        greedy_agreement=(original.argmax(-1) == served.argmax(-1)).float().mean().item(),
        token_count=len(original),
    )

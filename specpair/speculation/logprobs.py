"""Logprobs of tokens, by the model's own distribution, before any sampling option is applied."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specpair.speculation.largest import largest


class TokenLogprobs(NamedTuple):
    """What a model thinks of one token."""

    logprob: float
    top_token_ids: list[int]
    """The likeliest tokens at its place, most likely first."""
    top_logprobs: list[float]


def token_logprobs(logits: Tensor, token_ids: Sequence[int], top_counts: Sequence[int]) -> list[TokenLogprobs]:
    """For each row of logits [N, V]: the logprob of token_ids[row], and the top_counts[row] likeliest tokens."""
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(-1, torch.tensor(token_ids, device=logits.device)[:, None])[:, 0].tolist()
    top = largest(logprobs, min(max(top_counts, default=0), logits.shape[1]))
    values, ids = (part.tolist() for part in top)
    return [
        TokenLogprobs(logprob, ids[row][:count], values[row][:count])
        for row, (logprob, count) in enumerate(zip(chosen, top_counts, strict=True))
    ]

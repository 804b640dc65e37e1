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
    """For each row of logits [N, V]: the logprob of token_ids[row], and the top_counts[row] likeliest tokens.

    Which of equally likely tokens are named depends on how many are looked for, so each row gets as many as it wants.
    """
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(-1, torch.tensor(token_ids, device=logits.device)[:, None])[:, 0].tolist()
    entries = [TokenLogprobs(logprob, [], []) for logprob in chosen]
    for count in set(top_counts) - {0}:
        members = [row for row, wanted in enumerate(top_counts) if wanted == count]
        values, ids = largest(logprobs[members], min(count, logits.shape[1]))
        for row, top_ids, top_logprobs in zip(members, ids.tolist(), values.tolist(), strict=True):
            entries[row] = TokenLogprobs(chosen[row], top_ids, top_logprobs)
    return entries

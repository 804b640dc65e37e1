"""Logprobs of tokens under the model's own distribution, before any sampling option."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specpair.speculation.largest import largest


class TokenLogprobs(NamedTuple):
    """The logprob of one token, and those of the likeliest tokens at its position."""

    logprob: float
    top_token_ids: list[int]
    """The likeliest tokens at its position, most likely first."""
    top_logprobs: list[float]


def token_logprobs(logits: Tensor, token_ids: Sequence[int], top_counts: Sequence[int]) -> list[TokenLogprobs]:
    """For each row of logits [N, V]: the logprob of token_ids[row], and the top_counts[row] likeliest tokens.

    The choice among equally likely tokens depends on the number requested, so each row is computed with its own number.
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

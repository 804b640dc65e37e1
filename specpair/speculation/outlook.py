"""What a row had to offer beside the token that was taken from it: the likeliest tokens of an outcome."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from specpair.speculation.largest import largest

WIDTH = 8
"""Tokens of an outlook."""


class Outlook(NamedTuple):
    """The best tokens of one row, best first, at most WIDTH."""

    token_ids: Sequence[int]
    shares: Sequence[float]
    """How likely each is to be the target's choice by the row alone, relative to the others; in [0, 1]."""


def of_logits(adjusted: Tensor) -> list[Outlook]:
    """Of rows of logits [R, V]: the largest, with their probabilities among themselves."""
    found = largest(adjusted, min(WIDTH, adjusted.shape[1]))
    shares = found[0].float().softmax(-1)
    return [Outlook(ids, own) for ids, own in zip(found[1].tolist(), shares.tolist(), strict=True)]

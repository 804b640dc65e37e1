"""What a row had to offer beside the token that was taken from it: the likeliest tokens of an outcome."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from specpair.speculation.count_row import TOTAL, CountRow
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


def of_probabilities(row: Tensor) -> Outlook:
    """Of one row of probabilities [V]."""
    found = row.topk(min(WIDTH, len(row)))
    return Outlook(found.indices.tolist(), found.values.tolist())


def of_counts(row: CountRow) -> Outlook:
    """Of one row of counts."""
    token_ids, counts = np.asarray(row.token_ids), np.asarray(row.counts, dtype=np.int64)
    largest = np.argpartition(counts, -WIDTH)[-WIDTH:] if len(counts) > WIDTH else np.arange(len(counts))
    order = largest[np.argsort(-counts[largest], kind="stable")]
    return Outlook(token_ids[order].tolist(), (counts[order] / TOTAL).tolist())

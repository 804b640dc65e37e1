"""What a sequence's options do to single logits: allowed and banned tokens, min_tokens, logit bias, penalties.

The order is vLLM's: masks, bias, repetition, then frequency and presence penalties; temperature and what cuts the
distribution follow in `sampling`. Each row of a proposal sees the history up to it, drafted tokens included. Edits are
lists of (row, token) pairs, so the cost follows the tokens that are named or seen, not the vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specpair.options import SamplingOptions


class RowBlock(NamedTuple):
    """Rows of logits of one sequence, one behind each of its last prefixes."""

    options: SamplingOptions
    tokens: Sequence[int]
    """Prompt, output and proposal; the last row has seen all of them, the row before it all but the last one."""
    prompt_length: int
    row_count: int

    @property
    def first_length(self) -> int:
        """Tokens that the first row has seen."""
        return len(self.tokens) - self.row_count + 1


class Edits(NamedTuple):
    """Places [E] in rows of logits, with one number for each."""

    rows: np.ndarray
    """int64"""
    token_ids: np.ndarray
    """int64"""
    values: np.ndarray
    """float32"""


class Penalties(NamedTuple):
    """Tokens [E] that were seen, with what the options take for it."""

    rows: np.ndarray
    token_ids: np.ndarray
    repetition: np.ndarray
    """float32: divides what is positive, multiplies what is negative."""
    deduction: np.ndarray
    """float32: frequency times count, and presence, for what was seen in the output."""


def adjust(logits: Tensor, blocks: Sequence[RowBlock]) -> Tensor:
    """Logits [R, V] with the options of all blocks applied; R is the sum of their row counts.

    The tensor itself if no option changes anything, otherwise a new one.
    """
    if not any(block.options.adjusts_logits for block in blocks):
        return logits
    first_rows = np.cumsum([0, *(block.row_count for block in blocks)])
    placed = [(row, block) for row, block in zip(first_rows.tolist(), blocks, strict=False)]
    adjusted = _keep_allowed(logits, [(row, block) for row, block in placed if block.options.allowed_token_ids])
    _add(adjusted, _joined([_masks(row, block) for row, block in placed]))
    _add(adjusted, _joined([_biases(row, block) for row, block in placed]))
    penalties = [_penalties(row, block) for row, block in placed if block.options.penalizes]
    if penalties:
        _penalize(adjusted, Penalties(*map(np.concatenate, zip(*penalties, strict=True))))
    return adjusted


def _keep_allowed(logits: Tensor, blocks: list[tuple[int, RowBlock]]) -> Tensor:
    """A copy in which the rows of these blocks hold -inf but for what they allow."""
    adjusted = logits.clone()
    for first, block in blocks:
        token_ids = torch.tensor(block.options.allowed_token_ids, device=logits.device)
        rows = slice(first, first + block.row_count)
        adjusted[rows] = -torch.inf
        adjusted[rows, token_ids] = logits[rows, token_ids]
    return adjusted


def _masks(first: int, block: RowBlock) -> Edits:
    """Banned tokens in every row, stop tokens in the rows before min_tokens."""
    options = block.options
    free_from = block.prompt_length + options.min_tokens if options.min_tokens else 0
    early = min(max(free_from - block.first_length, 0), block.row_count)
    banned = _spread(first, block.row_count, options.banned_token_ids, -np.inf)
    return _joined([banned, _spread(first, early, options.stop_token_ids, -np.inf)])


def _biases(first: int, block: RowBlock) -> Edits:
    token_ids, values = zip(*block.options.logit_bias, strict=True) if block.options.logit_bias else ((), ())
    return _spread(first, block.row_count, token_ids, values)


def _penalties(first: int, block: RowBlock) -> Penalties:
    options = block.options
    token_ids, places = np.unique(np.asarray(block.tokens, dtype=np.int64), return_inverse=True)
    output_counts = _counts_by_row(block, places, len(token_ids), block.prompt_length)
    seen = _counts_by_row(block, places, len(token_ids), 0) > 0
    rows, columns = np.nonzero(seen)
    counts = output_counts[rows, columns]
    deduction = options.frequency_penalty * counts + options.presence_penalty * (counts > 0)
    return Penalties(
        rows=rows + first,
        token_ids=token_ids[columns],
        repetition=np.full(len(rows), options.repetition_penalty, dtype=np.float32),
        deduction=deduction.astype(np.float32),
    )


def _counts_by_row(block: RowBlock, places: np.ndarray, width: int, start: int) -> np.ndarray:
    """How often each of `width` tokens stands from `start` up to each row: [row_count, width]."""
    base = block.first_length
    counts = np.zeros((block.row_count, width), dtype=np.int64)
    counts[0] = np.bincount(places[start:base], minlength=width)
    drafted = np.arange(max(start, base), len(block.tokens))
    counts[drafted - base + 1, places[drafted]] = 1
    return counts.cumsum(0)


def _spread(first: int, row_count: int, token_ids: Sequence[int], values: Sequence[float] | float) -> Edits:
    """The same edits in each of `row_count` rows."""
    ids = np.asarray(token_ids, dtype=np.int64)
    each = np.broadcast_to(np.asarray(values, dtype=np.float32), ids.shape)
    rows = np.repeat(np.arange(first, first + row_count), len(ids))
    return Edits(rows, np.tile(ids, row_count), np.tile(each, row_count))


def _joined(parts: Sequence[Edits]) -> Edits:
    return Edits(*map(np.concatenate, zip(*parts, strict=True)))


def _add(logits: Tensor, edits: Edits) -> None:
    """Adds in place; no token may be named twice in a row unless -inf is added."""
    if len(edits.rows):
        rows, token_ids, values = (torch.from_numpy(part).to(logits.device) for part in edits)
        logits[rows, token_ids] += values


def _penalize(logits: Tensor, penalties: Penalties) -> None:
    rows, token_ids, repetition, deduction = (torch.from_numpy(part).to(logits.device) for part in penalties)
    values = logits[rows, token_ids]
    values = torch.where(values > 0, values / repetition, values * repetition)
    logits[rows, token_ids] = values - deduction

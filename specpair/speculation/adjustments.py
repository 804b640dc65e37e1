"""Applies the options that change single logits: allowed and banned tokens, min_tokens, logit bias, penalties.

The order is vLLM's: masks, bias, repetition penalty, then frequency and presence penalties. Temperature, min-p, top-k
and top-p follow in `sampling`. Each row of a proposal uses the history before it, including drafted tokens. The cost
depends on the number of named or seen tokens, not on the vocabulary. Data that is constant for a sequence is made once,
and what it has seen is counted on from row to row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specpair.options import SamplingOptions
from specpair.speculation.output_counts import OutputCounts


class NamedTokens(NamedTuple):
    """The tokens named by a sequence's options and prompt: int64 tensors on the model's device."""

    allowed: Tensor
    banned: Tensor
    stops: Tensor
    biased: Tensor
    biases: Tensor
    """Float32, one for each of `biased`."""
    prompt: Tensor
    """Each token of the prompt once; empty without a repetition penalty."""
    prompt_ids: np.ndarray
    """The same on the host, int64."""

    @classmethod
    def of(cls, options: SamplingOptions, prompt: Sequence[int], device: torch.device | str = "cpu") -> "NamedTokens":
        repeated = sorted(set(prompt)) if options.repetition_penalty != 1.0 else ()
        ids = (
            options.allowed_token_ids,
            options.banned_token_ids,
            options.stop_token_ids if options.min_tokens else (),
            [token_id for token_id, _ in options.logit_bias],
        )
        allowed, banned, stops, biased, seen = (
            torch.tensor(list(part), dtype=torch.long, device=device) for part in (*ids, repeated)
        )
        biases = torch.tensor([bias for _, bias in options.logit_bias], device=device)
        return cls(allowed, banned, stops, biased, biases, seen, np.asarray(repeated, dtype=np.int64))


class RowBlock(NamedTuple):
    """Rows of logits of one sequence, one after each of its last `row_count` prefixes."""

    options: SamplingOptions
    named: NamedTokens
    tokens: Sequence[int]
    """Prompt, output and proposal. The last row has seen all of them, the row before it all but the last token."""
    prompt_length: int
    """At most `first_length`."""
    row_count: int
    counts: OutputCounts
    """Of the sequence, as far as it was asked for."""

    @property
    def first_length(self) -> int:
        """Tokens that the first row has seen."""
        return len(self.tokens) - self.row_count + 1


class SeenTokens(NamedTuple):
    """Tokens [E] that rows have seen in the output, with their penalties."""

    rows: np.ndarray
    token_ids: np.ndarray
    repetition: np.ndarray
    """float32: divides positive logits, multiplies negative ones."""
    deduction: np.ndarray
    """float32: frequency penalty times count, plus presence penalty."""


def adjust(logits: Tensor, blocks: Sequence[RowBlock]) -> Tensor:
    """Logits [R, V] with the options of all blocks applied; R is the sum of their row counts.

    Returns the tensor itself if no option changes a logit, otherwise a new one.
    """
    if not any(block.options.adjusts_logits for block in blocks):
        return logits
    adjusted = logits.clone()
    seen = []
    first = 0
    for block in blocks:
        if block.options.adjusts_logits:
            _apply_named(adjusted[first : first + block.row_count], block)
        if block.options.penalizes:
            seen.append(_seen_in_output(first, block))
        first += block.row_count
    if seen:
        _penalize(adjusted, SeenTokens(*map(np.concatenate, zip(*seen, strict=True))))
    return adjusted


def _apply_named(rows: Tensor, block: RowBlock) -> None:
    """Applies what is the same for all rows [row_count, V] of a block, in place. Stop tokens are masked row by row."""
    options, named = block.options, block.named
    if len(named.allowed):
        kept = rows[:, named.allowed]
        rows.fill_(-torch.inf)
        rows[:, named.allowed] = kept
    if len(named.banned):
        rows[:, named.banned] = -torch.inf
    if len(named.stops):
        early = max(block.prompt_length + options.min_tokens - block.first_length, 0)
        rows[:early, named.stops] = -torch.inf
    if len(named.biased):
        rows[:, named.biased] += named.biases
    if len(named.prompt):
        rows[:, named.prompt] = _repeated(rows[:, named.prompt], options.repetition_penalty)


def _seen_in_output(first: int, block: RowBlock) -> SeenTokens:
    options = block.options
    token_ids, counts_of_first = block.counts.of(list(block.tokens[block.prompt_length : block.first_length]))
    drafted = np.asarray(block.tokens[block.first_length :], dtype=np.int64)
    new = np.setdiff1d(drafted, token_ids)
    token_ids = np.concatenate((token_ids, new))
    rows, columns, counts = _counts_by_row(block, token_ids, counts_of_first, drafted)
    # Tokens that the prompt has too were penalized with the prompt.
    in_prompt = np.isin(token_ids, block.named.prompt_ids)
    repetition = np.where(in_prompt, 1.0, options.repetition_penalty).astype(np.float32)
    deduction = options.frequency_penalty * counts + options.presence_penalty
    return SeenTokens(rows + first, token_ids[columns], repetition[columns], deduction.astype(np.float32))


def _counts_by_row(
    block: RowBlock, token_ids: np.ndarray, first: np.ndarray, drafted: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which of the tokens [width] each row has seen in the output, and how often: rows, columns and counts [E].

    `first` are the counts of the first row, for as many of the tokens as it has seen; each further row has seen one
    more of the `drafted` ones [row_count - 1].
    """
    counts = np.zeros((block.row_count, len(token_ids)), dtype=np.int64)
    counts[0, : len(first)] = first
    counts[1:] = drafted[:, None] == token_ids
    counts = counts.cumsum(0)
    rows, columns = np.nonzero(counts)
    return rows, columns, counts[rows, columns]


def _penalize(logits: Tensor, seen: SeenTokens) -> None:
    rows, token_ids, repetition, deduction = (torch.from_numpy(part).to(logits.device) for part in seen)
    logits[rows, token_ids] = _repeated(logits[rows, token_ids], repetition) - deduction


def _repeated(values: Tensor, penalty: Tensor | float) -> Tensor:
    """Logits after the repetition penalty (Keskar et al. 2019, "CTRL")."""
    return torch.where(values > 0, values / penalty, values * penalty)

"""Chooses the tokens of the next forward pass. Policy only, without tensors or a cache."""

from collections.abc import Sequence
from typing import NamedTuple

from specpair.engine.work import Work

SHORT_FOR_ONE = 2
"""Beside so many tokens of short works in a pass, prompts get at least one. Streams that decode take part in every
pass, so with as many of them as the budget a new one would otherwise wait for minutes."""


class Chunk(NamedTuple):
    """Tokens of one work in the next forward pass."""

    work: Work
    token_count: int
    completes: bool
    """Whether all tokens of the work are fed after it, so that its logits are needed."""


def schedule(works: Sequence[Work], token_budget: int, short: int) -> list[Chunk]:
    """Short works first, whole (verify rows and draft steps); then prefill chunks, oldest first, within the budget.

    A work is short if at most `short` of its tokens are pending. Rows whose logits are needed are never split: a chunk
    either completes the work or ends before those rows. If only they are left, they may exceed the budget.

    So a pass feeds fewer than max(`token_budget`, S + L) + R tokens. S is the number of tokens of short works, at most
    `short` for each open sequence. L is half of S, and at least `short`. R is the largest number of rows of one work.
    """
    chunks = [Chunk(work, work.pending, True) for work in works if work.pending <= short]
    of_short = sum(chunk.token_count for chunk in chunks)
    left = max(token_budget - of_short, least_prefill(of_short, short))
    for work in works:
        if work.pending <= short:
            continue
        if left <= 0:
            break
        chunk = prefill_chunk(work, left)
        if chunk.token_count:
            chunks.append(chunk)
            left -= chunk.token_count
    return chunks


def least_prefill(of_short: int, short: int) -> int:
    """Tokens that other works may feed beside this many tokens of short ones."""
    return max(of_short // SHORT_FOR_ONE, short)


def prefill_chunk(work: Work, budget: int) -> Chunk:
    pending = work.pending
    if pending <= max(budget, work.row_count):
        return Chunk(work, pending, True)
    count = min(budget, pending - work.row_count)
    return Chunk(work, count, False)

"""Which tokens the next forward pass feeds. Policy only: it knows no tensors and no cache."""

from collections.abc import Sequence
from typing import NamedTuple

from specpair.engine.work import Work


class Chunk(NamedTuple):
    """Tokens of one work in the next forward pass."""

    work: Work
    token_count: int
    completes: bool
    """All tokens of the work are fed after it, so its logits are wanted."""


def schedule(works: Sequence[Work], token_budget: int, short: int) -> list[Chunk]:
    """Short works first (verify rows and draft steps), whole; then prefill chunks, oldest first, under the budget.

    A work is short if at most `short` of its tokens are pending. Rows whose logits are wanted are never split: a
    chunk either completes the work or ends before them, and where they are all that is left they may exceed the budget.

    So a pass feeds fewer than max(`token_budget`, S + `short`) + R tokens: S are those of the short works, at most
    `short` for each open sequence, and R are the most rows that one work wants.
    """
    chunks = [Chunk(work, work.pending, True) for work in works if work.pending <= short]
    # However many short works there are, others get on by as many tokens as one of them.
    left = max(token_budget - sum(chunk.token_count for chunk in chunks), short)
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


def prefill_chunk(work: Work, budget: int) -> Chunk:
    pending = work.pending
    if pending <= max(budget, work.row_count):
        return Chunk(work, pending, True)
    count = min(budget, pending - work.row_count)
    return Chunk(work, count, False)

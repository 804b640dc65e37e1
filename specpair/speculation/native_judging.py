"""Judges proposals of counted rows by the compiled library: the decisions of `verification.verify`, which is the
reference. Thresholds of the block rule may differ from it in their last bits; from the same weights the same token is
drawn."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specpair.native.library import quick_functions
from specpair.options import Rule
from specpair.speculation.arrays import Array
from specpair.speculation.counted_rows import CountedRows, SentRows


class Decision(NamedTuple):
    """About one proposal."""

    accepted_count: int
    next_token: int
    is_finite: bool
    """Whether the target's rows are numbers; if not, the others mean nothing."""


def can_judge(target: Array, drafts: Sequence[SentRows]) -> bool:
    """Whether `judge_natively` can judge proposals by rows of the target [sum of (K_b + 1), V]."""
    if not isinstance(target, np.ndarray) or target.dtype != np.float32 or not target.flags.c_contiguous:
        return False
    row_count, width = target.shape
    for draft in drafts:
        if not isinstance(draft, CountedRows) or draft.vocab_size > width:
            return False
        row_count -= draft.count + 1
    return row_count == 0 and quick_functions() is not None


def judge_natively(
    target: np.ndarray,
    drafts: Sequence[SentRows],
    rule: Rule,
    accept_uniforms: np.ndarray,
    seeds: np.ndarray,
    steps: np.ndarray,
) -> list[Decision]:
    """Judges what `can_judge` allows, by the token rule or the block rule, with accept_uniforms [B, K] in
    [0, 1), float64. `seeds` and `steps` [B], int64 as unsigned bits, key the noise of the next tokens."""
    functions = quick_functions()
    assert functions is not None, "can_judge says whether it is loaded"
    judge, width, is_block = functions.specpair_judge, target.shape[1], rule is Rule.BLOCK
    judged = array("q", bytes(24))
    rows, uniforms, result = target.ctypes.data, accept_uniforms.ctypes.data, judged.buffer_info()[0]
    decisions: list[Decision] = []
    for draft, *key in zip(drafts, seeds.tolist(), steps.tolist(), strict=True):
        assert isinstance(draft, CountedRows)
        length = draft.count
        sent = draft.numbers.buffer_info()[0], draft.id_bytes, draft.count_bytes, draft.total_log2
        if judge(rows, width, length, *sent, is_block, uniforms, *key, result):
            raise MemoryError
        decisions.append(Decision(judged[0], judged[1], bool(judged[2])))
        rows += (length + 1) * target.strides[0]
        uniforms += accept_uniforms.strides[0]
    return decisions

"""Rows of counts made and drawn from on a device, with nothing that depends on what is in the tensors, neither a shape
nor a branch: so it can be captured in a graph, and the host need not wait.

They are the rows and draws of `sparse_rows`.
"""

import numpy as np
import torch
from torch import Tensor

from specpair.speculation.count_row import TOTAL, TOTAL_LOG2, CountRow
from specpair.speculation.randomness import BITS

_LOWER_32 = 0xFFFFFFFF


def device_counts(probabilities: Tensor, mass_cut: float, max_support: int) -> tuple[Tensor, Tensor]:
    """The counts of `sparse_rows.sparsify` for rows [N, V] float32: ascending ids and their counts, int64 [N, S] each.
    An entry with count 0 is padding, and a row of NaN has nothing else.

    Sums are running sums. numpy's plain sum may differ in the last bit, and then a count by 1 in 2^24: the token is
    drawn from what is sent all the same.
    """
    values, token_ids = _likeliest(probabilities, min(max_support, probabilities.size(1)))
    sums = values.cumsum(-1)
    missing = (sums < 1.0 - mass_cut).sum(-1)
    size = torch.minimum(missing + 1, (values > 0).sum(-1))
    mass = sums.gather(-1, (size - 1).clamp_min(0)[:, None])
    counts = (values * (TOTAL / mass)).long()
    counts = counts.masked_fill(torch.arange(values.size(1), device=size.device) >= size[:, None], 0)
    counts[:, 0] += TOTAL - counts.sum(-1)
    counts = counts * probabilities[:, :1].isfinite()
    ascending = token_ids.masked_fill(counts == 0, probabilities.size(1)).sort(-1)
    return ascending.values, counts.gather(-1, ascending.indices)


def draw_counted(token_ids: Tensor, counts: Tensor, bits: Tensor) -> Tensor:
    """Draws like `sparse_rows.draw_counts` from rows [N, S] of `device_counts` by 53 random bits [N]: int64 [N]."""
    chosen = bits[:, None] >> (BITS - TOTAL_LOG2)
    place = (counts.cumsum(-1) <= chosen).sum(-1, keepdim=True)
    return token_ids.gather(-1, place.clamp_max(token_ids.size(1) - 1))[:, 0]


def count_row_of(token_ids: np.ndarray, counts: np.ndarray) -> CountRow:
    """A row of `device_counts` on the host, without its padding."""
    held = counts > 0
    return CountRow(token_ids[held].astype(np.uint32), counts[held].astype(np.uint32))


def _likeliest(probabilities: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of rows [N, V] float32, in float64, and their tokens [N, count]; of equal ones the first tokens.

    Bits of numbers that are not negative ascend with the numbers, so both are one integer.
    """
    width = probabilities.size(1)
    reversed_ids = _LOWER_32 - torch.arange(width, device=probabilities.device)
    keys = (probabilities.contiguous().view(torch.int32).long() << 32) | reversed_ids
    found = keys.topk(count, -1).values
    return (found >> 32).int().view(torch.float32).double(), _LOWER_32 - (found & _LOWER_32)

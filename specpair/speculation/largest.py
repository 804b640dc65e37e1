"""The k largest of rows over a vocabulary."""

from torch import Tensor

_GROUP = 64


def largest(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and indices [R, k] of the k largest of rows [R, V], descending; the choice among equals is undefined.

    Over a large vocabulary `topk` alone takes three times as long on a CPU as first choosing the k groups of 64 with
    the largest maxima. No other group can hold an element of the k largest.
    """
    row_count, width = rows.shape
    if width < 2 * _GROUP * k or width % _GROUP:
        found = rows.topk(k, -1)
        return found.values, found.indices
    grouped = rows.view(row_count, -1, _GROUP)
    groups = grouped.amax(-1).topk(k, -1, sorted=False).indices
    candidates = grouped.gather(1, groups[..., None].expand(-1, -1, _GROUP))
    found = candidates.view(row_count, -1).topk(k, -1)
    group = groups.gather(-1, found.indices // _GROUP)
    return found.values, group * _GROUP + found.indices % _GROUP

"""The choices and outlooks of `gumbel`, which is the reference, by the compiled library.

The logarithm is the C library's: two times that are equal but for its last bit may change places.
"""

from array import array
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specpair.native.library import quick_functions
from specpair.speculation.count_row import UINT32, CountRow
from specpair.speculation.native_softmax import FEW_LOGITS
from specpair.speculation.outlook import WIDTH, Outlook


def race(
    probabilities: Tensor, seeds: Sequence[int], positions: Sequence[int], width: int = 0
) -> tuple[Tensor, list[Outlook]] | None:
    """The choices of rows [R, V], as those of `gumbel.choose`: int64 [R], and with a `width` the first tokens to arrive
    of each row, as `gumbel.choose_and_look` has them. Rows with one seed and position share the making of its noise.

    None if the library is not loaded, or the rows are no float32 on a CPU.
    """
    if probabilities.device.type != "cpu" or probabilities.dtype != torch.float32:
        return None
    if (functions := quick_functions(probabilities.numel())) is None:
        return None
    rows = probabilities.contiguous()
    count, vocab_size = rows.shape
    keys = array("Q", seeds), array("Q", positions)
    if len(keys[0]) != count or len(keys[1]) != count:
        raise ValueError(f"{count} rows, {len(keys[0])} seeds, {len(keys[1])} positions")
    winners = torch.empty(count, dtype=torch.int64)
    sizes, tokens, shares = (
        array(kind, bytes(8 * count * size)) for kind, size in (("q", 1), ("q", width), ("d", width))
    )
    threads = 1 if rows.numel() <= FEW_LOGITS else torch.get_num_threads()
    outcome = functions.specpair_race(
        *(rows.data_ptr(), count, vocab_size, *(_address(key) for key in keys), threads, winners.data_ptr()),
        *(width, _address(tokens), _address(shares), _address(sizes)),
    )
    if outcome:
        raise MemoryError
    ends = zip(range(0, count * width, width or 1), sizes, strict=False)
    return winners, [Outlook(tokens[i : i + size].tolist(), shares[i : i + size].tolist()) for i, size in ends]


def foresee(rows: Sequence[CountRow], seed: int, step: int) -> list[Outlook] | None:
    """The outlooks of `own_token.foresee`; None if the library is not loaded."""
    if (functions := quick_functions()) is None:
        return None
    tokens, shares = array("q", bytes(8 * WIDTH)), array("d", bytes(8 * WIDTH))
    found = _address(tokens), _address(shares)
    outlooks: list[Outlook] = []
    for row in rows:
        ids, counts = (np.require(part, UINT32, "C") for part in row)
        size = functions.specpair_foresee(ids.ctypes.data, counts.ctypes.data, len(ids), seed, step, WIDTH, *found)
        outlooks.append(Outlook(tokens[:size].tolist(), shares[:size].tolist()))
    return outlooks


def _address(numbers: "array[int] | array[float]") -> int:
    return numbers.buffer_info()[0]

"""The softmax of rows by the compiled library. Each row has its own bits, in any company and by any number of threads;
those of torch's differ in the last ones."""

import torch
from torch import Tensor

from specpair.native.library import quick_functions

FEW_LOGITS = 1 << 20
"""So many take about half a millisecond on one thread. Further ones would only be waited for."""


def soften(logits: Tensor, temperatures: Tensor | None = None) -> Tensor | None:
    """The probabilities of rows of logits [R, V] at temperatures [R] float32, or at 1: float32 [R, V].

    Temperature 0 is greedy. A row that is not finite (see `sampling.finite_rows`) becomes all NaN. An exp is off by at
    most two units in the last place, and 0 below e^-87 of the largest. None if the library is not loaded, or the logits
    are no float32 on a CPU.
    """
    if logits.device.type != "cpu" or logits.dtype != torch.float32:
        return None
    if (functions := quick_functions(logits.numel())) is None:
        return None
    logits = logits.contiguous()
    result = torch.empty_like(logits)
    own = None if temperatures is None else temperatures.data_ptr()
    threads = 1 if logits.numel() <= FEW_LOGITS else torch.get_num_threads()
    functions.specpair_soften(logits.data_ptr(), *logits.shape, own, threads, result.data_ptr())
    return result

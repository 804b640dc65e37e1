"""The options of rows as a captured graph has them: all of them as tensors, whatever is in use."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specpair.options import SamplingOptions
from specpair.speculation.sampling import SamplingRows, SamplingUse


@dataclass(frozen=True)
class FixedRows:
    use: SamplingUse
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    is_fixed = True

    @classmethod
    def of(cls, options: Sequence[SamplingOptions]) -> "FixedRows":
        rows = SamplingRows.of(options)
        return cls(rows.use, rows.temperature, rows.top_k, rows.top_p, rows.min_p)

"""Converts logits to the distribution that is sampled; draft and target share this pipeline.

After `adjustments` it applies temperature, min-p, top-k and top-p, in the order that vLLM documents. Verification uses
only the result, never the raw logits: every way of sampling is standard sampling from an adjusted distribution
(Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", section 2.2).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from specpair.options import SamplingOptions
from specpair.speculation.arrays import Array
from specpair.speculation.largest import largest
from specpair.speculation.native_softmax import FEW_LOGITS, soften

_TOP_P_WIDTH = 128
"""Number of most likely tokens to try for top-p on a CPU, before whole rows are sorted. There numpy sorts 49,152 tokens
in a quarter of the time that the first 1024 take."""

LEAST_DIVIDED = 1 << 15
"""Numbers of a tensor above which torch divides a softmax among threads."""
FEW_ROWS = 64


class SamplingUse(NamedTuple):
    """Which options rows use, known without a device access. It decides which operations run."""

    any_greedy: bool
    all_greedy: bool
    scales: bool
    """Whether any row that is not greedy has a temperature other than 1."""
    largest_top_k: int
    """Largest top_k of the rows that are not greedy, or more; 0 if none uses top_k."""
    cuts_top_p: bool
    """Whether any row that is not greedy has top_p below 1."""
    cuts_min_p: bool
    """Whether any row that is not greedy has min_p above 0."""

    @property
    def cuts(self) -> bool:
        """Whether any row that is not greedy leaves out tokens."""
        return self.largest_top_k > 0 or self.cuts_top_p or self.cuts_min_p

    @classmethod
    def of(cls, options: Sequence[SamplingOptions]) -> "SamplingUse":
        drawn, scales, largest_top_k, cuts_top_p, cuts_min_p = 0, False, 0, False, False
        for one in options:
            if one.temperature == 0.0:
                continue
            drawn += 1
            scales |= one.temperature != 1.0
            largest_top_k = max(largest_top_k, one.top_k)
            cuts_top_p |= one.top_p < 1.0
            cuts_min_p |= one.min_p > 0.0
        return cls(drawn < len(options), not drawn, scales, largest_top_k, cuts_top_p, cuts_min_p)


class SamplingNumbers(Protocol):
    """The options of rows of logits as tensors [R] on their device."""

    @property
    def use(self) -> SamplingUse: ...
    @property
    def is_fixed(self) -> bool:
        """Whether no operation may depend on what is in the tensors: on a device that would be a synchronisation, and
        cannot be captured in a graph."""
        ...

    @property
    def temperature(self) -> Tensor:
        """float32; 0 is greedy."""
        ...

    @property
    def top_k(self) -> Tensor:
        """int64; 0 keeps all."""
        ...

    @property
    def top_p(self) -> Tensor:
        """float32."""
        ...

    @property
    def min_p(self) -> Tensor:
        """float32."""
        ...


class SamplingRows:
    """The options of rows of logits, by sequence: sequence b has row_counts[b] rows with the same options. Only options
    in use become tensors."""

    def __init__(
        self, options: Sequence[SamplingOptions], row_counts: Sequence[int], device: torch.device | str = "cpu"
    ):
        self._options = options
        self._row_counts = row_counts
        self._device = device
        self.use = SamplingUse.of(options)

    @classmethod
    def of(cls, options: Sequence[SamplingOptions], device: torch.device | str = "cpu") -> "SamplingRows":
        """Row r samples with options[r]."""
        return cls(options, [1] * len(options), device)

    @property
    def is_fixed(self) -> bool:
        return torch.device(self._device).type != "cpu"

    @property
    def temperature(self) -> Tensor:
        return self._column([one.temperature for one in self._options], np.float32)

    @property
    def top_k(self) -> Tensor:
        return self._column([one.top_k for one in self._options], np.int64)

    @property
    def top_p(self) -> Tensor:
        return self._column([one.top_p for one in self._options], np.float32)

    @property
    def min_p(self) -> Tensor:
        return self._column([one.min_p for one in self._options], np.float32)

    def _column(self, numbers: list[float], dtype: type[np.generic]) -> Tensor:
        return torch.from_numpy(np.array(numbers, dtype=dtype).repeat(self._row_counts)).to(
            self._device, non_blocking=True
        )


def probabilities(logits: Tensor, rows: SamplingNumbers) -> Tensor:
    """The distributions [R, V] that rows of logits [R, V] are sampled from: float32, or float64 for float64 logits.

    A greedy row becomes one-hot at its largest logit, the first of several. A row that is not finite (see
    `finite_rows`) becomes all NaN, or any values if greedy, without affecting other rows.
    """
    dtype = logits.dtype if logits.dtype == torch.float64 else torch.float32
    logits, use = logits.to(dtype), rows.use
    if use.all_greedy:
        return _one_hot(logits)
    if not use.cuts:
        softened = soften(logits, rows.temperature if use.scales or use.any_greedy else None)
        if softened is not None:  # the bits that the steps below come to
            return softened
    if use.scales:
        # Relative to the largest logit, so that no temperature makes a finite logit overflow.
        temperature = rows.temperature.to(dtype).clamp_min(torch.finfo(dtype).tiny)
        logits = (logits - logits.amax(-1, keepdim=True)).div_(temperature[:, None])
    if use.cuts_min_p:
        # exp(logit - largest) is the probability relative to the largest; log 0 is -inf and keeps all. The difference
        # has the same bits whether or not the logits were already made relative to the largest.
        relative = logits - logits.amax(-1, keepdim=True)
        logits = logits.masked_fill(relative < rows.min_p.to(dtype).log()[:, None], -torch.inf)
    if use.largest_top_k:
        logits = _keep_top_k(logits, rows.top_k, use.largest_top_k)
    result = softmax(logits)
    if use.cuts_top_p:
        result = _keep_top_p(result, rows.top_p, rows.is_fixed)
    if use.any_greedy:
        result = torch.where((rows.temperature == 0)[:, None], _one_hot(logits), result)
    return result


def finite_rows(logits: Tensor) -> Tensor:
    """Which rows [R, V] can be sampled: bool [R]. Not those with NaN, with +inf, or with only -inf."""
    return logits.amax(-1).isfinite()


def came_of_finite(distributions: Array) -> Array:
    """Which rows [R, V] of `probabilities`, not greedy, came from finite logits: bool [R]."""
    first = distributions[:, 0]
    return first == first  # NaN equals nothing


def likeliest(logits: Tensor) -> tuple[list[int], list[bool]]:
    """The largest of each row [R, V], the first of several, and which rows are finite."""
    if logits.device.type == "cpu":  # numpy takes a tenth of torch's time there
        rows = logits.numpy()
        tokens: list[int] = rows.argmax(-1).tolist()  # the first NaN, if there is one
        return tokens, [math.isfinite(row[token]) for row, token in zip(rows, tokens, strict=True)]
    largest = logits.argmax(-1)
    finite = logits.gather(-1, largest[:, None])[:, 0].isfinite()
    found = torch.stack((largest, finite.long())).tolist()
    return found[0], [is_finite > 0 for is_finite in found[1]]


def softmax(logits: Tensor) -> Tensor:
    """The softmax of each row [R, V]. Torch does few rows on a CPU one by one: it would divide them among threads, and
    on a busy processor waiting for a thread takes longer. A row has the same bits either way."""
    if (softened := soften(logits)) is not None:
        return softened
    is_quick = len(logits) <= FEW_ROWS and LEAST_DIVIDED < logits.numel() <= FEW_LOGITS
    if logits.device.type != "cpu" or not is_quick:
        return logits.softmax(-1)
    result = torch.empty_like(logits)
    for row, own in zip(logits, result, strict=True):
        torch.softmax(row, -1, out=own)
    return result


def _one_hot(logits: Tensor) -> Tensor:
    return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)


def _keep_top_k(logits: Tensor, top_k: Tensor, largest_top_k: int) -> Tensor:
    """Masks logits below the k-th largest of their row with -inf; ties with it stay."""
    values, _ = largest(logits, min(largest_top_k, logits.shape[-1]))
    last = (top_k.clamp(1, values.shape[-1]) - 1)[:, None]
    threshold = values.gather(-1, last).masked_fill_((top_k == 0)[:, None], -torch.inf)
    return logits.masked_fill(logits < threshold, -torch.inf)


def _keep_top_p(rows: Tensor, top_p: Tensor, is_fixed: bool) -> Tensor:
    """Keeps the smallest set of tokens of rows [R, V] that reaches top_p, the first of equal ones, and normalises.

    The result of a row does not depend on other rows, whose top_p decides how many values are examined: all masses are
    running sums. A plain sum over a single long row is split among threads, but not over many rows.
    """
    values, mass = _whole_mass(rows) if is_fixed else _leading_mass(rows, top_p)
    mass_before = pad(mass[:, :-1], (1, 0))
    wanted = (mass_before < top_p[:, None]).sum(-1, keepdim=True).clamp_min(1)
    keeps_all = (top_p >= 1.0)[:, None]
    threshold = values.gather(-1, wanted - 1).masked_fill_(keeps_all, 0.0)
    kept = ~(rows < threshold)  # NaN stays
    surplus = (kept.sum(-1, keepdim=True) - wanted).masked_fill_(keeps_all, 0)
    if is_fixed or bool(surplus.any()):
        ties = rows == threshold
        kept &= ~ties | (ties.cumsum(-1) <= ties.sum(-1, keepdim=True) - surplus)
    kept_mass = mass.gather(-1, wanted - 1).masked_fill_(keeps_all, 1.0)
    return rows.masked_fill(~kept, 0.0) / kept_mass.to(rows.dtype)


def _leading_mass(rows: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """The largest probabilities of each row, descending, enough to reach top_p, and their running sums in float64."""
    values, _ = largest(rows, min(_TOP_P_WIDTH, rows.shape[-1]))
    mass = values.double().cumsum(-1)
    reached = (mass[:, -1] >= top_p) | (top_p >= 1.0)
    return (values, mass) if bool(reached.all()) else _whole_mass(rows)


def _whole_mass(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The same of all probabilities of each row."""
    values = _descending(rows)
    return values, values.double().cumsum(-1)


def _descending(rows: Tensor) -> Tensor:
    """The values of each row [R, V] sorted, NaN first."""
    if rows.device.type == "cpu":  # numpy takes a thirtieth of torch's time there, since it sorts no indices
        return torch.from_numpy(np.sort(rows.numpy(), -1)).flip(-1)
    return rows.sort(-1, descending=True).values

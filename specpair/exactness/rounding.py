"""How far rounding may part outputs that should be equal.

Batches of different shape add the same numbers in different order, so that two tokens that are nearly as good may
change places. A deterministic target does not allow itself that.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """What counts as a near-tie."""

    gap: float
    """Greedy outputs may part where the two best logprobs are closer than this."""
    flips: float
    """Share of sampled outputs that may part: their ties cannot be seen from outside."""


NONE = Rounding(gap=0.0, flips=0.0)
SINGLE = Rounding(gap=1e-3, flips=0.02)
HALF = Rounding(gap=0.25, flips=1.0)
"""Logits between 16 and 32 are multiples of 1/8 in bfloat16: the places where sampled outputs part are so many that
their number says nothing."""


def rounding_of(dtype: str, *, is_deterministic: bool) -> Rounding:
    """Of a model whose weights have this type."""
    if is_deterministic:
        return NONE
    return SINGLE if dtype == "float32" else HALF

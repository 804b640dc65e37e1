"""How far outputs that should be equal may differ because of rounding.

Batches of different shapes add the same numbers in different orders, so two nearly equal tokens may change places. With
a deterministic target that does not happen.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """What counts as a near-tie."""

    gap: float
    """Greedy outputs may differ from a position on where the two best logprobs are closer than this."""
    flips: float
    """Share of sampled outputs that may differ: their near-ties cannot be recognised from outside."""


NONE = Rounding(gap=0.0, flips=0.0)
SINGLE = Rounding(gap=1e-3, flips=0.02)
HALF = Rounding(gap=0.25, flips=1.0)
"""Logits between 16 and 32 are multiples of 1/8 in bfloat16: sampled outputs differ so often that the share says
nothing."""


def rounding_of(dtype: str, *, is_deterministic: bool) -> Rounding:
    """The rounding of a model whose weights have this type."""
    if is_deterministic:
        return NONE
    return SINGLE if dtype == "float32" else HALF

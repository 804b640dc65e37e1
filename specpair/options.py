"""The options of a request: one definition of each, and the one place that checks it.

Plain data, without torch or grpc, so that every process and front end shares it.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from specpair.errors import InvalidFieldError

MAX_TEMPERATURE = 100.0
MAX_SEED = 2**64 - 1


class Rule(StrEnum):
    """How a block of draft tokens is judged."""

    TOKEN = "token"
    BLOCK = "block"


class Encoding(StrEnum):
    """How the draft's distributions travel."""

    SPARSE = "sparse"
    DENSE = "dense"


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How tokens are drawn from logits: temperature, then top-k, then top-p.

    Raises InvalidFieldError for a value outside its limits.
    """

    temperature: float = 1.0
    """Divides the logits; 0 is greedy."""
    top_k: int = 0
    """Keeps the k most likely tokens, and those that tie with the last of them; 0 keeps all."""
    top_p: float = 1.0
    """Keeps the smallest set of tokens whose probability reaches top_p."""
    seed: int = 0
    """Key of every random draw of the sequence."""

    def __post_init__(self) -> None:
        check_range("sampling.temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        check_range("sampling.top_k", self.top_k, 0, 2**32 - 1)
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidFieldError("sampling.top_p", f"is {self.top_p}; it must be above 0 and at most 1", limit=1)
        check_range("sampling.seed", self.seed, 0, MAX_SEED)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


def check_range(field: str, value: float, low: float, high: float) -> None:
    """Raises InvalidFieldError unless `low <= value <= high`; NaN is outside every range."""
    if math.isnan(value) or not low <= value <= high:
        raise InvalidFieldError(field, f"is {value}; it must be between {low} and {high}", limit=high)

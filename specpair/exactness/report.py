"""The findings of a run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from specpair.exactness.draws import Prompt
from specpair.exactness.g_test import GTest
from specpair.exactness.plan import Kind
from specpair.exactness.power import POWER
from specpair.options import Rule


class Verdict(StrEnum):
    """The result of one test."""

    SAME = "same"
    NEAR_TIE = "near-tie"
    """Outputs differ from a position on where two tokens are so close that rounding decides."""
    DIFFERENT = "different"
    UNTESTED = "untested"
    """Nothing to compare: only one outcome, or the draft did not answer."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The first `length` tokens of outputs with and without speculation."""

    prompt: Prompt
    options: str
    rule: Rule
    length: int
    draws: tuple[int, int]
    """Outputs with and without speculation."""
    bins: int
    test: GTest
    corrected_p_value: float
    """Holm's, over all comparisons of the run."""
    detectable_distance: float | None
    """Smallest total variation distance that the test would have detected; None if it could not detect any."""
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Equality:
    """Outputs that must be equal."""

    kind: Kind
    rule: Rule
    num_speculative_tokens: int
    equal: int
    """Pairs of outputs that are equal."""
    near_ties: int
    """Pairs that differ from a near-tie on."""
    different: int
    """Pairs that differ without a near-tie."""
    skipped: int
    """Pairs that cannot be compared, because the draft did not answer in time."""
    verdict: Verdict
    note: str = ""
    """Where the first different pair differs, with details."""


@dataclass(frozen=True, kw_only=True)
class Speculated:
    """Counts of speculation in the sampled outputs of one rule."""

    rule: Rule
    draft_token_count: int
    accepted_token_count: int
    round_count: int
    fallback_count: int

    @property
    def acceptance_rate(self) -> float:
        return self.accepted_token_count / self.draft_token_count if self.draft_token_count else 0.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """The findings of a whole run."""

    alpha: float
    equalities: Sequence[Equality]
    comparisons: Sequence[Comparison]
    speculated: Sequence[Speculated]

    @property
    def passed(self) -> bool:
        return not self._failures()

    @property
    def tested(self) -> Sequence[Comparison]:
        """The comparisons that had something to compare."""
        return [entry for entry in self.comparisons if entry.verdict is not Verdict.UNTESTED]

    @property
    def detectable_distance(self) -> float | None:
        """The distance that every comparison with something to compare would have detected; None if one could detect
        nothing."""
        distances = [entry.detectable_distance for entry in self.tested]
        known = [distance for distance in distances if distance is not None]
        return max(known) if known and len(known) == len(distances) else None

    @property
    def verdict_line(self) -> str:
        """The outcome in one line."""
        if not self.passed:
            return (
                f"NOT EXACT: {self._failures()} of {len(self.equalities) + len(self.tested)} tests found a difference"
            )
        if not self.tested:
            return "no difference found, but the outputs never varied: sampling was not tested"
        found = f"no difference found in {len(self.tested)} comparisons and {len(self.equalities)} checks of equality"
        if self.detectable_distance is None:
            return f"{found}; too few draws to see one with certainty"
        least = math.ceil(self.detectable_distance * 100) / 100
        return (
            f"{found}; a difference of {least:.2f} or more (total variation, anywhere) would have been seen with "
            f"{POWER:.0%} probability"
        )

    def _failures(self) -> int:
        return sum(entry.verdict is Verdict.DIFFERENT for entry in (*self.equalities, *self.comparisons))

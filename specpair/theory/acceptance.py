"""The probability that a draft token is accepted, from the two distributions at its position.

`target` and `draft` are probabilities over one vocabulary in one order, after all sampling options: p and q of
Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023), and of Stratos, "Speculative
Decoding". Results are probabilities. All functions raise InvalidDistributionError for arguments that are not
distributions or do not match.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from specpair.errors import InvalidDistributionError
from specpair.options import Rule, check_lenience

Distribution: TypeAlias = Sequence[float]

SUM_TOLERANCE = 1e-4
"""How far a sum may be from 1: float32 rows of 100,000 tokens are off by more than 1e-6, and so are thirds typed by
hand."""


def token_acceptance(target: Distribution, draft: Distribution, lenience: float = 1.0) -> float:
    """Token rule: beta = sum_x min(p(x), q(x)) = 1 - D_LK(p, q), Theorem 3.5.

    With a lenience l below 1, sum_x min(p(x) / l, q(x)), appendix A.5. No exact rule accepts the first token of a block
    more often; the block rule accepts at least as many tokens in total.
    """
    check_pair(target, draft)
    check_lenience(lenience, Rule.TOKEN)
    return _probability(min(p / lenience, q) for p, q in zip(target, draft, strict=True))


def total_variation(target: Distribution, draft: Distribution) -> float:
    """D_LK(p, q) = sum_x |p(x) - q(x)| / 2, Definition 3.2: the chance of rejection under the token rule."""
    check_pair(target, draft)
    return _probability(abs(p - q) / 2 for p, q in zip(target, draft, strict=True))


def coupled_acceptance(target: Distribution, draft: Distribution) -> float:
    """Coupled rule: the chance that argmax(log p + g) and argmax(log q + g) agree, g being the same Gumbel noise.

    Exactly sum_x 1 / sum_y max(p(y) / p(x), q(y) / q(x)): the noise is a race of exponential clocks, and x wins both if
    the clock of every y rings after that of x times the larger ratio. At least (1 - TV) / (1 + TV): Daliri et al.,
    "Coupling without Communication and Drafter-Invariant Speculative Decoding" (2024). In descending order of p / q the
    maximum is p's up to x and q's after it, so sorting makes the inner sums running sums.
    """
    check_pair(target, draft)
    pairs = [pair for pair in zip(target, draft, strict=True) if any(pair)]
    pairs.sort(key=lambda pair: pair[0] / pair[1] if pair[1] else math.inf, reverse=True)
    target_before = accumulate(p for p, _ in pairs)
    draft_behind = reversed([0.0, *accumulate(q for _, q in reversed(pairs[1:]))])
    return _probability(
        1 / (before / p + behind / q)
        for (p, q), before, behind in zip(pairs, target_before, draft_behind, strict=True)
        if p and q
    )


def coupled_bound(target: Distribution, draft: Distribution) -> float:
    """(1 - TV) / (1 + TV): the least acceptance of the coupled rule for any distributions at that distance."""
    distance = total_variation(target, draft)
    return (1 - distance) / (1 + distance)


def greedy_draft_acceptance(target: Distribution, draft: Distribution) -> float:
    """Token and coupled rule with a draft that always proposes its likeliest token: the target's probability of it."""
    check_pair(target, draft)
    return target[_argmax(draft)]


def greedy_acceptance(target: Distribution, draft: Distribution) -> float:
    """Temperature 0 on both sides: 1 where the likeliest tokens agree, else 0 (Stratos, appendix A)."""
    check_pair(target, draft)
    return 1.0 if _argmax(target) == _argmax(draft) else 0.0


def independent_acceptance(target: Distribution, draft: Distribution) -> float:
    """Both draw independently, and the token is accepted if both drew the same: sum_x p(x) q(x)."""
    check_pair(target, draft)
    return _probability(p * q for p, q in zip(target, draft, strict=True))


def rejection_acceptance(target: Distribution, draft: Distribution) -> float:
    """Rejection sampling without iteration, 1 / max_x p(x) / q(x): appendix A.2, which shows it never does better."""
    check_pair(target, draft)
    return min(1.0, min(q / p for p, q in zip(target, draft, strict=True) if p))


def candidates_acceptance(target: Distribution, drafts: Sequence[Distribution]) -> float:
    """The probability that one of several candidates for a position is accepted, each judged on the residual after
    those before it: iterative speculative sampling, Stratos, section 2."""
    rejected, remaining = 1.0, target
    for draft in drafts:
        rejected *= 1 - token_acceptance(remaining, draft)
        remaining = residual(remaining, draft)
    return 1 - rejected


def residual(target: Distribution, draft: Distribution) -> list[float]:
    """norm(max(p - q, 0)): the distribution of the target's token after a rejection (section 2.3). The target's own
    distribution if nothing can be rejected."""
    check_pair(target, draft)
    excess = [max(p - q, 0.0) for p, q in zip(target, draft, strict=True)]
    total = math.fsum(excess)
    return [mass / total for mass in excess] if total else list(target)


def check_pair(target: Distribution, draft: Distribution) -> None:
    """Raises InvalidDistributionError unless both are distributions over the same number of tokens."""
    check_distribution("target", target)
    check_distribution("draft", draft)
    if len(target) != len(draft):
        raise InvalidDistributionError("draft", f"has {len(draft)} probabilities, but the target has {len(target)}")


def check_distribution(field: str, probabilities: Distribution) -> None:
    """Raises InvalidDistributionError unless all are in [0, 1] and their sum is 1 within SUM_TOLERANCE."""
    for i, probability in enumerate(probabilities):
        if not 0.0 <= probability <= 1.0 + SUM_TOLERANCE:
            raise InvalidDistributionError(
                f"{field}[{i}]", f"is {probability:.6g}; it must be between 0 and 1", limit=1
            )
    total = math.fsum(probabilities)
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise InvalidDistributionError(field, f"sums to {total:.9g}; it must sum to 1", limit=1)


def _argmax(probabilities: Distribution) -> int:
    """The first of the likeliest tokens."""
    return max(range(len(probabilities)), key=lambda i: probabilities[i])


def _probability(terms: Iterable[float]) -> float:
    """The sum of the terms, at most 1 despite rounding."""
    return min(1.0, math.fsum(terms))

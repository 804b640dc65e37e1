"""The gain of speculation over the target alone: tokens per round, time, operations, reads; and the best K.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023), section 3. Its names and ours:

    alpha   acceptance               gamma (K)   num_speculative_tokens
    c       cost_ratio               c-hat       operations_ratio

`acceptance` is one number, the same probability for every draft token (the paper's i.i.d. assumption), or a profile:
the probabilities of the first, second, ... token of a proposal, each given that those before it were accepted. A
measured profile needs no assumption; it covers proposals up to its own length.

Times are in units of one target step for one token. A round of K > 0 takes 1 + c K + `overhead`; the overhead is the
cost beyond K draft steps and one target step (network, a wider target pass). If a target pass grows by v with each row,
v adds to c. A round of K = 0 is the target alone and takes 1.

All functions raise InvalidFieldError for a value outside its limits.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, repeat
from operator import mul
from typing import NamedTuple, TypeAlias

from specpair.errors import InvalidFieldError
from specpair.options import check_range

Acceptance: TypeAlias = float | Sequence[float]

MAX_NUM_SPECULATIVE_TOKENS = 1024
MAX_RATIO = 1e6
SEARCH_LIMIT = 64
"""Default limit of K for `optimum`."""


class Optimum(NamedTuple):
    """The best fixed K."""

    num_speculative_tokens: int
    walltime_factor: float


def expected_tokens(acceptance: Acceptance, num_speculative_tokens: int) -> float:
    """Mean tokens of a round: Equation (1), (1 - a^(K+1)) / (1 - a), as the sum 1 + a + ... + a^K.

    For a profile 1 + a_1 + a_1 a_2 + ... The same is in Stratos, "Speculative Decoding", section 1.1.1.
    """
    _check(acceptance, num_speculative_tokens)
    return math.fsum(_survival(acceptance, num_speculative_tokens))


def round_cost(num_speculative_tokens: int, cost_ratio: float, overhead: float = 0.0) -> float:
    """Time of a round: 1 + c K + overhead, or 1 for K = 0 (proof of Theorem 3.8)."""
    check_range("num_speculative_tokens", num_speculative_tokens, 0, MAX_NUM_SPECULATIVE_TOKENS)
    check_range("cost_ratio", cost_ratio, 0.0, MAX_RATIO)
    check_range("overhead", overhead, 0.0, MAX_RATIO)
    return _round_cost(num_speculative_tokens, cost_ratio, overhead)


def speedup(tokens_per_round: float, num_speculative_tokens: int, cost_ratio: float, overhead: float = 0.0) -> float:
    """Improvement in walltime of rounds with `tokens_per_round` tokens on average, whatever their acceptance."""
    cost = round_cost(num_speculative_tokens, cost_ratio, overhead)
    check_range("tokens_per_round", tokens_per_round, 0.0, num_speculative_tokens + 1)
    return tokens_per_round / cost


def walltime_factor(
    acceptance: Acceptance, num_speculative_tokens: int, cost_ratio: float, overhead: float = 0.0
) -> float:
    """Expected improvement in walltime: Theorem 3.8, (1 - a^(K+1)) / ((1 - a) (c K + 1)), overhead included."""
    tokens = expected_tokens(acceptance, num_speculative_tokens)
    return tokens / round_cost(num_speculative_tokens, cost_ratio, overhead)


def operations_factor(acceptance: Acceptance, num_speculative_tokens: int, operations_ratio: float = 0.0) -> float:
    """Expected growth of arithmetic operations: Theorem 3.11, (1 - a) (c-hat K + K + 1) / (1 - a^(K+1))."""
    check_range("operations_ratio", operations_ratio, 0.0, MAX_RATIO)
    tokens = expected_tokens(acceptance, num_speculative_tokens)
    return (operations_ratio * num_speculative_tokens + num_speculative_tokens + 1) / tokens


def reads_factor(acceptance: Acceptance, num_speculative_tokens: int) -> float:
    """Reads of the target's weights and cache for each token, as a share of those of plain decoding (section 3.4)."""
    return 1 / expected_tokens(acceptance, num_speculative_tokens)


def optimum(acceptance: Acceptance, cost_ratio: float, overhead: float = 0.0, *, limit: int = SEARCH_LIMIT) -> Optimum:
    """The K of 0 .. limit with the largest walltime factor, the smallest of equals (section 3.5).

    It tries every K: with an overhead, 0 can beat 1 while some longer proposal beats both. A profile limits K to its
    length.
    """
    check_range("limit", limit, 0, MAX_NUM_SPECULATIVE_TOKENS)
    longest = longest_known(acceptance, limit)
    _check(acceptance, longest)
    round_cost(longest, cost_ratio, overhead)
    best, tokens = Optimum(0, 1.0), 0.0
    for k, survival in enumerate(_survival(acceptance, longest)):
        tokens += survival
        factor = tokens / _round_cost(k, cost_ratio, overhead)
        if factor > best.walltime_factor:
            best = Optimum(k, factor)
    return best


def longest_known(acceptance: Acceptance, limit: int) -> int:
    """The largest K up to `limit` for which the acceptance is known: a profile has a finite length."""
    return min(limit, len(acceptance)) if isinstance(acceptance, Sequence) else limit


def oracle_tokens(acceptance: float) -> float:
    """Mean tokens of a round whose K is always the number that will be accepted: 1 / (1 - a), section 3.5."""
    check_range("acceptance", acceptance, 0.0, 1.0)
    return math.inf if acceptance == 1.0 else 1 / (1 - acceptance)


def oracle_walltime_factor(acceptance: float, cost_ratio: float, overhead: float = 0.0) -> float:
    """Improvement in walltime if the number N of tokens that will be accepted were known before each round.

    A bound for every way of choosing K that verifies its proposals (section 3.5 and its footnote). Proposing exactly N
    is best, or nothing if N is too small to pay: N + 1 tokens take min(1 + c N + overhead, N + 1). Over geometric N
    that is the value below; without overhead and for c < 1 it is 1 / (1 - a + a c).
    """
    oracle_tokens(acceptance)
    round_cost(1, cost_ratio, overhead)
    if cost_ratio >= 1.0:
        return 1.0
    break_even = overhead / (1 - cost_ratio)
    shortest = math.floor(break_even) + 1
    # E max(N - break_even, 0) / E (N + 1), since N - shortest is distributed as N once N >= shortest.
    gain = acceptance**shortest * ((shortest - break_even) * (1 - acceptance) + acceptance)
    remaining = 1 - (1 - cost_ratio) * gain
    return math.inf if remaining == 0.0 else 1 / remaining


def profile_from_counts(round_count: int, accepted_per_position: Sequence[int]) -> list[float]:
    """The profile of `round_count` rounds of one K: for each position, the share of rounds reaching it that accept it.

    `accepted_per_position[i]` counts the rounds that accepted more than i tokens. Positions that no round reached are
    0. A profile holds for shorter proposals too, under every rule: even the block rule accepts the first i tokens
    equally often whether or not others follow.
    """
    reached = [round_count, *accepted_per_position]
    for i, (before, after) in enumerate(zip(reached, accepted_per_position, strict=False)):
        check_range(f"accepted_per_position[{i}]", after, 0, before)
    return [after / before if before else 0.0 for before, after in zip(reached, accepted_per_position, strict=False)]


def _survival(acceptance: Acceptance, num_speculative_tokens: int) -> Iterator[float]:
    """The probabilities that at least 0, 1, .. K tokens are accepted."""
    if isinstance(acceptance, Sequence):
        chances = iter(acceptance[:num_speculative_tokens])
    else:
        chances = repeat(acceptance, num_speculative_tokens)
    return accumulate(chain([1.0], chances), mul)


def _round_cost(num_speculative_tokens: int, cost_ratio: float, overhead: float) -> float:
    return 1.0 + num_speculative_tokens * cost_ratio + overhead if num_speculative_tokens else 1.0


def _check(acceptance: Acceptance, num_speculative_tokens: int) -> None:
    check_range("num_speculative_tokens", num_speculative_tokens, 0, MAX_NUM_SPECULATIVE_TOKENS)
    if not isinstance(acceptance, Sequence):
        return check_range("acceptance", acceptance, 0.0, 1.0)
    for i, chance in enumerate(acceptance):
        check_range(f"acceptance[{i}]", chance, 0.0, 1.0)
    if num_speculative_tokens > len(acceptance):
        known = f"the profile knows {len(acceptance)} positions"
        raise InvalidFieldError(
            "num_speculative_tokens", f"is {num_speculative_tokens}; {known}", limit=len(acceptance)
        )

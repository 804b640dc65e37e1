"""Tokens per round, factors, the best K and the oracle: against simulation, brute force, and the rules themselves."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specpair.errors import InvalidFieldError
from specpair.options import Rule
from specpair.theory.acceptance import token_acceptance
from specpair.theory.speedup import (
    MAX_NUM_SPECULATIVE_TOKENS,
    SEARCH_LIMIT,
    Optimum,
    expected_tokens,
    operations_factor,
    optimum,
    oracle_tokens,
    oracle_walltime_factor,
    profile_from_counts,
    reads_factor,
    round_cost,
    speedup,
    walltime_factor,
)
from tests.unit.specpair.speculation.enumeration import Model, enumerate_round, random_model

chances = st.floats(0.0, 1.0)
costs = st.floats(0.0, 2.0)
lengths = st.integers(0, 40)
profiles = st.lists(chances, max_size=12)
acceptances = st.one_of(chances, profiles.filter(bool))


def simulated_tokens(profile: Sequence[float], rounds: int, seed: int) -> np.ndarray:
    """Tokens of each of `rounds` rounds: coins in order until one says no, and the target's own token."""
    coins = np.random.default_rng(seed).random((rounds, len(profile))) < np.array(profile)
    return coins.cumprod(axis=1).sum(axis=1) + 1


@settings(deadline=None)
@given(chances, lengths)
def test_expected_tokens_is_equation_1(acceptance: float, k: int) -> None:
    if acceptance < 0.99:
        closed_form = (1 - acceptance ** (k + 1)) / (1 - acceptance)
        assert expected_tokens(acceptance, k) == pytest.approx(closed_form)
    assert expected_tokens([acceptance] * k, k) == expected_tokens(acceptance, k)


@settings(deadline=None)
@given(profiles, costs, st.floats(0.0, 1.0))
def test_the_limits_are_exact(profile: list[float], cost_ratio: float, overhead: float) -> None:
    k = len(profile)
    assert (expected_tokens(0.0, k), expected_tokens(1.0, k), expected_tokens(profile, 0)) == (1.0, k + 1.0, 1.0)
    for acceptance in (0.0, 0.3, 1.0, profile):
        assert walltime_factor(acceptance, 0, cost_ratio, overhead) == 1.0
        assert operations_factor(acceptance, 0, cost_ratio) == reads_factor(acceptance, 0) == 1.0
    assert walltime_factor(1.0, k, 0.0) == k + 1
    assert operations_factor(0.0, k, 0.0) == k + 1
    assert operations_factor(1.0, k, 0.0) == 1.0


def test_factors_tend_to_their_limits() -> None:
    assert expected_tokens(1e-9, 7) == pytest.approx(1.0, abs=1e-8)
    assert expected_tokens(1 - 1e-9, 7) == pytest.approx(8.0, abs=1e-6)
    assert expected_tokens(math.nextafter(1.0, 0.0), MAX_NUM_SPECULATIVE_TOKENS) == pytest.approx(1025.0)


@pytest.mark.parametrize("profile", [[0.8] * 5, [0.3] * 2, [0.9, 0.7, 0.5, 0.2], [1.0, 0.0, 0.9], [0.6]])
def test_the_formulas_are_what_a_simulated_process_does(profile: list[float]) -> None:
    rounds, k, cost_ratio, overhead, operations_ratio = 200_000, len(profile), 0.07, 0.2, 0.01
    tokens = simulated_tokens(profile, rounds, seed=len(profile))
    noise = 5 * tokens.std() / math.sqrt(rounds)
    mean = tokens.mean()
    assert expected_tokens(profile, k) == pytest.approx(mean, abs=noise + 1e-12)
    time = rounds * (1 + overhead + k * cost_ratio)
    assert walltime_factor(profile, k, cost_ratio, overhead) == pytest.approx(tokens.sum() / time, abs=noise + 1e-12)
    assert speedup(float(mean), k, cost_ratio, overhead) == pytest.approx(tokens.sum() / time)
    operations = rounds * (k + 1 + k * operations_ratio) / tokens.sum()
    assert operations_factor(profile, k, operations_ratio) == pytest.approx(operations, rel=noise + 1e-12)
    assert reads_factor(profile, k) == pytest.approx(rounds / tokens.sum(), rel=noise + 1e-12)
    reached = [int((tokens > i).sum()) for i in range(1, k + 1)]
    measured = profile_from_counts(rounds, reached)
    assert expected_tokens(measured, k) == pytest.approx(mean)


def without_context(row: torch.Tensor, depth: int) -> Model:
    """A unigram model of one distribution [V]: the case for which the i.i.d. assumption holds."""
    return [row.expand(len(row) ** level, -1) for level in range(depth)]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_token_rule_of_the_services_gives_the_expected_tokens(seed: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    target, draft = (random_model(generator, 4, 1, 1.0, 0.2)[0][0] for _ in range(2))
    alpha = token_acceptance(target.tolist(), draft.tolist())
    outcome = enumerate_round(without_context(target, k + 1), without_context(draft, k), Rule.TOKEN)
    assert outcome.mean_accepted + 1 == pytest.approx(expected_tokens(alpha, k), abs=1e-12)
    block = enumerate_round(without_context(target, k + 1), without_context(draft, k), Rule.BLOCK)
    assert block.mean_accepted + 1 >= expected_tokens(alpha, k) - 1e-12


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
@pytest.mark.parametrize("seed", range(4))
def test_a_profile_holds_for_shorter_proposals(rule: Rule, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    target, draft = random_model(generator, 3, 4, 1.5, 0.1), random_model(generator, 3, 3, 1.5, 0.1)
    emission = enumerate_round(target, draft, rule).emission
    reached = [float(emission[i:].sum()) for i in range(4)]
    profile = [after / before for before, after in pairwise(reached)]
    for k in (1, 2, 3):
        accepted = enumerate_round(target[: k + 1], draft[:k], rule).mean_accepted
        assert expected_tokens(profile, k) == pytest.approx(accepted + 1, abs=1e-12)


@settings(deadline=None)
@given(acceptances, costs, st.floats(0.0, 3.0), st.integers(0, 30))
def test_the_optimum_is_the_first_maximum(
    acceptance: float | list[float], cost_ratio: float, overhead: float, limit: int
) -> None:
    longest = min(limit, len(acceptance)) if isinstance(acceptance, list) else limit
    factors = [walltime_factor(acceptance, k, cost_ratio, overhead) for k in range(longest + 1)]
    best, factor = optimum(acceptance, cost_ratio, overhead, limit=limit)
    assert factor == pytest.approx(max(factors), rel=1e-12)
    assert factors[best] == pytest.approx(max(factors), rel=1e-12)
    assert all(earlier < factor * (1 + 1e-12) for earlier in factors[:best])


def test_the_optimum_at_its_edges() -> None:
    assert optimum(0.0, 0.0) == (0, 1.0)
    assert optimum(0.5, 0.5) == (0, 1.0)  # K = 1 is exactly as fast, and costs more
    assert optimum(0.9, 1.0) == (0, 1.0)
    assert optimum(1.0, 0.0) == (SEARCH_LIMIT, SEARCH_LIMIT + 1.0)
    assert optimum([1.0, 1.0], 0.0) == (2, 3.0)
    assert optimum([], 0.0) == (0, 1.0)
    assert optimum(0.9, 0.0, limit=0) == (0, 1.0)


def test_with_an_overhead_none_beats_one_and_many_beat_none() -> None:
    factors = [walltime_factor(0.9, k, 0.05, 1.5) for k in (0, 1)]
    best = optimum(0.9, 0.05, 1.5)
    assert factors[1] < 1.0 < best.walltime_factor and best.num_speculative_tokens > 5


@settings(deadline=None)
@given(chances, st.floats(0.0, 0.99))
def test_corollary_3_9(acceptance: float, cost_ratio: float) -> None:
    """Speculation pays if and only if acceptance exceeds the cost ratio, and then by (1 + a) / (1 + c) at least."""
    best = optimum(acceptance, cost_ratio)
    assert best.walltime_factor >= (1 + acceptance) / (1 + cost_ratio) - 1e-12
    if acceptance <= cost_ratio:
        assert best == Optimum(0, 1.0)


@settings(deadline=None)
@given(chances, chances, st.integers(1, 20), costs, costs, st.floats(0.0, 2.0))
def test_monotonicity(one: float, other: float, k: int, cheap: float, dear: float, overhead: float) -> None:
    low, high = sorted((one, other))
    cheap, dear = sorted((cheap, dear))
    slack = 1 + 1e-12
    assert expected_tokens(low, k) <= expected_tokens(high, k) * slack
    assert expected_tokens(low, k - 1) <= expected_tokens(low, k)
    assert walltime_factor(low, k, cheap, overhead) <= walltime_factor(high, k, cheap, overhead) * slack
    assert walltime_factor(low, k, dear, overhead) <= walltime_factor(low, k, cheap, overhead)
    assert walltime_factor(low, k, cheap, overhead) <= walltime_factor(low, k, cheap)
    assert operations_factor(high, k, cheap) <= operations_factor(low, k, cheap) * slack
    assert operations_factor(low, k - 1, cheap) <= operations_factor(low, k, cheap) * slack
    assert reads_factor(high, k) <= reads_factor(low, k) * slack
    assert optimum(low, cheap, overhead).walltime_factor <= optimum(high, cheap, overhead).walltime_factor * slack
    # Nearer to 1 rounding decides.
    low, high = min(low, 1 - 1e-6), min(high, 1 - 1e-6)
    assert oracle_walltime_factor(low, cheap, overhead) <= oracle_walltime_factor(high, cheap, overhead) * (1 + 1e-9)


@settings(deadline=None)
@given(chances, costs, st.floats(0.0, 5.0))
def test_no_fixed_k_beats_the_oracle(acceptance: float, cost_ratio: float, overhead: float) -> None:
    best = optimum(acceptance, cost_ratio, overhead, limit=200)
    assert best.walltime_factor <= oracle_walltime_factor(acceptance, cost_ratio, overhead) * (1 + 1e-9)
    assert expected_tokens(acceptance, 200) <= oracle_tokens(acceptance) * (1 + 1e-9)


def foreseen_time(coins: np.ndarray, cost_ratio: float, overhead: float) -> float:
    """Least time to emit a token for each coin when all coins are known: every K in every round is tried."""
    times, run = [0.0] * (len(coins) + 1), 0
    for start in reversed(range(len(coins))):
        run = run + 1 if coins[start] else 0
        after = [times[min(start + 1 + n, len(coins))] for n in range(run + 1)]
        # One more than the run is proposed in vain, which must never be best.
        proposals = [1 + overhead + cost_ratio * k + after[min(k, run)] for k in range(1, run + 2)]
        times[start] = min(1 + after[0], *proposals)
    return times[0]


@pytest.mark.slow
@pytest.mark.parametrize("overhead", [0.0, 0.7, 1.0, 4.0])
@pytest.mark.parametrize(("acceptance", "cost_ratio"), [(0.8, 0.05), (0.9, 0.3), (0.5, 0.0), (0.6, 0.9), (0.7, 1.2)])
def test_the_oracle_is_what_foresight_achieves(acceptance: float, cost_ratio: float, overhead: float) -> None:
    coins = np.random.default_rng(7).random(60_000) < acceptance
    achieved = len(coins) / foreseen_time(coins, cost_ratio, overhead)
    assert oracle_walltime_factor(acceptance, cost_ratio, overhead) == pytest.approx(achieved, rel=0.01)


def test_the_oracle_at_its_edges() -> None:
    assert oracle_tokens(0.75) == 4.0 and oracle_tokens(1.0) == math.inf
    assert oracle_walltime_factor(0.75, 0.0) == 4.0
    assert oracle_walltime_factor(0.8, 0.05) == pytest.approx(1 / (1 - 0.8 + 0.8 * 0.05))
    assert oracle_walltime_factor(1.0, 0.0) == math.inf and oracle_walltime_factor(1.0, 0.25) == 4.0
    assert oracle_walltime_factor(1.0, 0.0, 3.0) == math.inf and oracle_walltime_factor(1.0, 0.25, 3.0) == 4.0
    assert oracle_walltime_factor(0.0, 0.0) == oracle_walltime_factor(0.9, 1.0) == 1.0
    assert oracle_walltime_factor(0.5, 0.0, 1e6) == 1.0


def test_the_oracle_gains_what_section_3_5_says() -> None:
    """ "Up to ~60 %" over a fixed K, for typical acceptances and cost ratios."""
    gains = [
        oracle_walltime_factor(acceptance / 100, cost / 200) / optimum(acceptance / 100, cost / 200, limit=400)[1] - 1
        for acceptance in range(50, 100)
        for cost in range(1, 41)
    ]
    assert 0.55 < max(gains) < 0.60


def test_counts_become_a_profile() -> None:
    assert profile_from_counts(10, [8, 6, 0, 0]) == [0.8, 0.75, 0.0, 0.0]
    assert profile_from_counts(0, []) == []
    assert profile_from_counts(0, [0]) == [0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_tokens(1.5, 3), "acceptance: is 1.5; it must be between 0.0 and 1.0"),
        (lambda: expected_tokens(math.nan, 3), "acceptance: is nan"),
        (lambda: expected_tokens([0.5, -0.1], 1), "acceptance[1]: is -0.1"),
        (lambda: expected_tokens([0.5, 0.4], 3), "num_speculative_tokens: is 3; the profile knows 2 positions"),
        (lambda: expected_tokens(0.5, -1), "num_speculative_tokens: is -1; it must be between 0 and 1024"),
        (lambda: walltime_factor(0.5, 1025, 0.1), "num_speculative_tokens: is 1025"),
        (lambda: walltime_factor(0.5, 3, -0.1), "cost_ratio: is -0.1; it must be between 0.0 and 1000000.0"),
        (lambda: walltime_factor(0.5, 3, 0.1, math.inf), "overhead: is inf"),
        (lambda: operations_factor(0.5, 3, -1), "operations_ratio: is -1"),
        (lambda: speedup(5.5, 4, 0.1), "tokens_per_round: is 5.5; it must be between 0.0 and 5"),
        (lambda: round_cost(-1, 0.1), "num_speculative_tokens: is -1"),
        (lambda: optimum(0.5, 0.1, limit=-1), "limit: is -1"),
        (lambda: optimum(0.5, math.nan), "cost_ratio: is nan"),
        (lambda: optimum([0.5, 2.0], 0.1), "acceptance[1]: is 2.0"),
        (lambda: oracle_tokens(-0.5), "acceptance: is -0.5"),
        (lambda: oracle_walltime_factor(0.5, -1), "cost_ratio: is -1"),
        (lambda: oracle_walltime_factor(0.5, 0.1, -1), "overhead: is -1"),
        (lambda: profile_from_counts(5, [6]), "accepted_per_position[0]: is 6; it must be between 0 and 5"),
        (lambda: profile_from_counts(5, [3, 4]), "accepted_per_position[1]: is 4; it must be between 0 and 3"),
    ],
)
def test_a_wrong_value_is_named_with_its_limit(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_the_coordinator_can_afford_it() -> None:
    """Nothing of the package loads torch, numpy or matplotlib."""
    names = ("speedup", "acceptance", "points", "published", "plot")
    modules = ", ".join(f"specpair.theory.{name}" for name in names)
    heavy = ("torch", "numpy", "matplotlib", "grpc")
    script = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")

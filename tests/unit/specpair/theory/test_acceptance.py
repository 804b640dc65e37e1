"""Acceptance from two distributions: against enumeration of each rule, and against the services' own choices."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specpair.errors import InvalidDistributionError, InvalidFieldError
from specpair.speculation.gumbel import choose
from specpair.theory.acceptance import (
    candidates_acceptance,
    coupled_acceptance,
    coupled_bound,
    greedy_acceptance,
    greedy_draft_acceptance,
    independent_acceptance,
    rejection_acceptance,
    residual,
    token_acceptance,
    total_variation,
)

Row = list[float]
EXAMPLE = ([0.5, 0.1, 0.4], [0.2, 0.5, 0.3])
"""Target and draft of "everyday", "today", "tomorrow" in Shekhar, "Speculative Decoding"."""


def normalised(weights: list[int]) -> Row:
    return [weight / sum(weights) for weight in weights]


def rows(size: int) -> st.SearchStrategy[Row]:
    return st.lists(st.integers(0, 50), min_size=size, max_size=size).filter(any).map(normalised)


pairs = st.integers(1, 7).flatmap(lambda size: st.tuples(rows(size), rows(size)))
triples = st.integers(1, 5).flatmap(lambda size: st.tuples(rows(size), rows(size), rows(size)))
exact = settings(deadline=None, max_examples=200)


def one_hot(row: Row) -> Row:
    """All on the likeliest token."""
    return [float(i == row.index(max(row))) for i in range(len(row))]


def approx(value: float) -> object:
    return pytest.approx(value, abs=1e-12)


@exact
@given(pairs)
def test_token_acceptance_is_the_mean_over_the_drafts_tokens(pair: tuple[Row, Row]) -> None:
    """Theorem 3.5's expectation, summed over every token that the draft can draw, in exact arithmetic."""
    p, q = ([Fraction(mass) for mass in row] for row in pair)
    mean = sum(b * min(Fraction(1), a / b) for a, b in zip(p, q, strict=True) if b)
    assert token_acceptance(*pair) == approx(float(mean))
    assert total_variation(*pair) == approx(1 - float(mean))
    assert total_variation(*reversed(pair)) == approx(1 - float(mean))  # Corollary 3.4


@exact
@given(pairs, st.floats(0.05, 1.0))
def test_lenient_acceptance_is_the_mean_of_appendix_a_5(pair: tuple[Row, Row], lenience: float) -> None:
    mean = math.fsum(q * p / max(p, lenience * q) for p, q in zip(*pair, strict=True) if q)
    assert token_acceptance(*pair, lenience) == approx(mean)
    assert token_acceptance(*pair, lenience) >= token_acceptance(*pair) - 1e-12


@exact
@given(pairs)
def test_coupled_acceptance_is_the_double_sum(pair: tuple[Row, Row]) -> None:
    p, q = pair
    tokens = range(len(p))
    wins = [1 / math.fsum(max(p[y] / p[x], q[y] / q[x]) for y in tokens) for x in tokens if p[x] and q[x]]
    assert coupled_acceptance(p, q) == approx(math.fsum(wins))
    assert coupled_acceptance(q, p) == approx(math.fsum(wins))


@pytest.mark.parametrize("size", [2, 5, 40])
@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_coupled_acceptance_is_how_often_the_services_agree(size: int, spread: float) -> None:
    """`choose` is what draft and target call; here both choose at 20,000 positions."""
    draws = 20_000
    generator = torch.Generator().manual_seed(size)
    target, draft = (
        torch.randn(size, generator=generator, dtype=torch.float64).mul(spread).softmax(-1) for _ in range(2)
    )
    positions = list(range(draws))
    choices = [choose(row.expand(draws, -1), [3] * draws, positions) for row in (target, draft)]
    agreed = float((choices[0] == choices[1]).double().mean())
    expected = coupled_acceptance(target.tolist(), draft.tolist())
    assert agreed == pytest.approx(expected, abs=4.5 * math.sqrt(expected * (1 - expected) / draws))


@exact
@given(pairs)
def test_the_order_of_the_rules(pair: tuple[Row, Row]) -> None:
    """No rule beats the token rule on one token; the coupled rule stays above its bound, which is above 1 - 2 TV."""
    token, coupled = token_acceptance(*pair), coupled_acceptance(*pair)
    assert 1 - 2 * total_variation(*pair) - 1e-12 <= coupled_bound(*pair) <= coupled + 1e-12
    assert max(coupled, independent_acceptance(*pair), rejection_acceptance(*pair)) <= token + 1e-12


@exact
@given(pairs)
def test_a_draft_that_always_proposes_its_likeliest_token(pair: tuple[Row, Row]) -> None:
    """It is the case of a one-hot draft, under both rules; greedy on both sides is the case of two one-hot rows."""
    target, draft = pair
    greedy_target, greedy_draft = one_hot(target), one_hot(draft)
    for rule in (token_acceptance, coupled_acceptance, independent_acceptance):
        assert rule(target, greedy_draft) == approx(greedy_draft_acceptance(target, draft))
        assert rule(greedy_target, greedy_draft) == greedy_acceptance(target, draft)


@exact
@given(pairs)
def test_rejection_sampling_is_the_mean_of_appendix_a_2(pair: tuple[Row, Row]) -> None:
    if any(p and not q for p, q in zip(*pair, strict=True)):
        assert rejection_acceptance(*pair) == 0.0  # M is infinite
    else:
        largest = max(p / q for p, q in zip(*pair, strict=True) if q)
        mean = math.fsum(q * p / (largest * q) for p, q in zip(*pair, strict=True) if q)
        assert rejection_acceptance(*pair) == approx(mean)


@exact
@given(triples)
def test_two_candidates_enumerated(triple: tuple[Row, Row, Row]) -> None:
    """Stratos, section 2: every pair of candidates, every decision; what comes out is the target's distribution."""
    target, first, second = triple
    remaining = residual(target, first)
    last = residual(remaining, second)
    accepted, out = 0.0, [0.0] * len(target)
    for x, q in enumerate(first):
        taken = q * min(1.0, target[x] / q) if q else 0.0
        accepted, out[x] = accepted + taken, out[x] + taken
    rejected = 1 - accepted
    for x, q in enumerate(second):
        taken = rejected * q * min(1.0, remaining[x] / q) if q else 0.0
        accepted, out[x] = accepted + taken, out[x] + taken
    out = [mass + (1 - accepted) * rest for mass, rest in zip(out, last, strict=True)]
    assert candidates_acceptance(target, [first, second]) == approx(accepted)
    assert out == pytest.approx(target, abs=1e-9)
    assert candidates_acceptance(target, [first]) == approx(token_acceptance(target, first))
    assert candidates_acceptance(target, []) == 0.0


@exact
@given(pairs)
def test_the_residual_completes_the_target(pair: tuple[Row, Row]) -> None:
    target, draft = pair
    rejected = total_variation(target, draft)
    completed = [min(p, q) + rejected * mass for p, q, mass in zip(target, draft, residual(target, draft), strict=True)]
    assert completed == pytest.approx(target, abs=1e-12)


def test_the_example_of_the_introduction() -> None:
    assert [min(1.0, p / q) for p, q in zip(*EXAMPLE, strict=True)] == pytest.approx([1.0, 0.2, 1.0])
    assert residual(*EXAMPLE) == pytest.approx([0.75, 0.0, 0.25])
    assert token_acceptance(*EXAMPLE) == pytest.approx(0.6)


def test_equal_and_disjoint() -> None:
    row, other = [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]
    for rule in (token_acceptance, coupled_acceptance, coupled_bound, rejection_acceptance):
        assert (rule(row, row), rule(row, other)) == (1.0, 0.0)
    assert residual(row, row) == row and residual(row, other) == row


def test_a_large_vocabulary_is_no_matter() -> None:
    generator = torch.Generator().manual_seed(1)
    target, draft = (torch.randn(100_000, generator=generator).softmax(-1).tolist() for _ in range(2))
    assert coupled_bound(target, draft) < coupled_acceptance(target, draft) < token_acceptance(target, draft)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: token_acceptance([0.5, 0.4], [0.5, 0.5]), "target: sums to 0.9; it must sum to 1"),
        (lambda: coupled_acceptance([0.5, 0.5], [1.5, -0.5]), "draft[0]: is 1.5; it must be between 0 and 1"),
        (lambda: total_variation([0.5, math.nan], [0.5, 0.5]), "target[1]: is nan; it must be between 0 and 1"),
        (lambda: independent_acceptance([1.0], [0.5, 0.5]), "draft: has 2 probabilities, but the target has 1"),
        (lambda: greedy_acceptance([], []), "target: sums to 0; it must sum to 1"),
        (lambda: greedy_draft_acceptance([1.0], [2.0]), "draft[0]: is 2"),
        (lambda: rejection_acceptance([1.0], [0.0]), "draft: sums to 0"),
        (lambda: residual([1.0], [0.9]), "draft: sums to 0.9"),
    ],
)
def test_what_is_no_distribution_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidDistributionError) as caught:
        call()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("lenience", [0.0, 1.5, math.nan])
def test_lenience_has_its_limits(lenience: float) -> None:
    with pytest.raises(InvalidFieldError, match="lenience: is"):
        token_acceptance([1.0], [1.0], lenience)

"""The statistics of the bench, on figures whose answer is known."""

import math
import random

import pytest

from bench.line import Line
from bench.ratios import bootstrap, difference, ratio


def pairs(values: list[list[float]]) -> dict[tuple[int, int], float]:
    """`values[prompt][repetition]` by key."""
    return {(i, j): value for i, row in enumerate(values) for j, value in enumerate(row)}


def test_ratio_is_paired_turn_by_turn() -> None:
    """The machine gets slower and slower, the ratio stays."""
    slowing = [[100.0, 10.0, 1.0], [50.0, 5.0, 0.5]]
    doubled = [[2 * value for value in row] for row in slowing]
    found = ratio(pairs(doubled), pairs(slowing))
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_ratio_is_the_geometric_mean_over_prompts_of_medians_over_repetitions() -> None:
    numerators = [[1.0, 1.0, 900.0], [4.0, 4.0, 0.001]]
    found = ratio(pairs(numerators), pairs([[1.0] * 3] * 2))
    assert found.value == pytest.approx(math.sqrt(1.0 * 4.0))


def test_ratio_the_other_way_round_is_the_inverse() -> None:
    left, right = pairs([[3.0, 5.0, 4.0], [7.0, 2.0, 6.0]]), pairs([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    there, back = ratio(left, right), ratio(right, left)
    assert there.value == pytest.approx(1 / back.value)
    assert there.low == pytest.approx(1 / back.high, rel=0.02)


def test_difference_is_of_medians() -> None:
    found = difference(pairs([[5.0, 6.0, 100.0]]), pairs([[4.0, 4.0, 4.0]]))
    assert found.value == 2.0


def test_turns_that_do_not_match_are_a_fault() -> None:
    with pytest.raises(AssertionError):
        ratio(pairs([[1.0, 2.0]]), pairs([[1.0]]))


def test_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Normal noise around a known mean: about 95 of 100 intervals hold it (fewer with so few groups)."""
    generator = random.Random(1)
    hits = 0
    for trial in range(60):
        values = [[generator.gauss(3.0, 1.0) for _ in range(3)] for _ in range(12)]
        found = bootstrap(pairs(values), seed=trial)
        hits += found.low <= 3.0 <= found.high
    assert 50 <= hits <= 60


def test_interval_narrows_with_more_prompts() -> None:
    generator = random.Random(2)
    few, many = (
        bootstrap(pairs([[generator.gauss(0.0, 1.0) for _ in range(3)] for _ in range(count)])) for count in (4, 64)
    )
    assert many.high - many.low < (few.high - few.low) / 2


def test_line_through_points() -> None:
    line = Line.through([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 5.0, 7.0])
    assert (line.intercept, line.slope) == pytest.approx((1.0, 2.0))

"""Chances of draws say something of a row, and nothing that no draw could have."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.trees.chances import draw_chances, drawn_chances
from specpair.speculation.trees.drawn_tree import Row


def row_of(weights: list[int]) -> Row:
    return Row(np.arange(len(weights)), np.array(weights) / sum(weights), replaces=False)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 8))
def test_there_are_as_many_as_tokens_can_be_drawn(weights: list[int], most: int) -> None:
    chances = draw_chances(row_of(weights), most)
    assert len(chances) == min(len(weights), most)
    assert all(0.0 <= chance <= 1.0 for chance in chances)


def test_a_certain_row_is_drawn_from_once() -> None:
    assert draw_chances(row_of([1]), 8) == [pytest.approx(1.0, abs=0.02)]


def test_a_surer_row_has_a_better_first_draw_and_worse_later_ones() -> None:
    sure, unsure = draw_chances(row_of([90, 5, 5]), 3), draw_chances(row_of([40, 30, 30]), 3)
    assert sure[0] > unsure[0]
    assert sure[1] < unsure[1]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.randoms())
def test_drawn_tokens_have_chances_too(weights: list[int], order: Random) -> None:
    tokens = order.sample(range(len(weights)), len(weights))
    chances = drawn_chances(row_of(weights), tokens)
    assert len(chances) == len(tokens) and sum(chances) <= 1.0
    assert all(0.0 <= chance <= 1.0 for chance in chances)


def test_a_token_that_holds_most_of_its_row_is_likelier() -> None:
    row = row_of([90, 5, 5])
    assert drawn_chances(row, [0])[0] > 0.8 > 0.5 > drawn_chances(row, [1])[0]


def test_a_later_draw_is_what_the_first_has_left() -> None:
    """Of a row without the first token, and only if that one is rejected."""
    row = row_of([8, 1, 1])
    after_likely, after_unlikely = drawn_chances(row, [0, 1]), drawn_chances(row, [1, 0])
    assert after_likely[1] < 1.0 - after_likely[0]
    assert after_likely[1] < after_unlikely[1]

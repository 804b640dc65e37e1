"""Chances of draws say something of a row, and nothing that no draw could have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.trees.chances import draw_chances
from specpair.speculation.trees.drawn_tree import Row


def row_of(weights: list[int]) -> Row:
    return Row(np.arange(len(weights)), np.array(weights) / sum(weights), replaces=False)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 8))
def test_there_are_as_many_as_tokens_can_be_drawn(weights: list[int], most: int) -> None:
    chances = draw_chances(row_of(weights), most)
    assert len(chances) == min(len(weights), most)
    assert all(0.0 <= chance <= 1.0 for chance in chances)


def test_a_certain_row_is_drawn_from_once() -> None:
    assert draw_chances(row_of([1]), 8) == [1.0]


def test_a_surer_row_has_a_better_first_draw_and_worse_later_ones() -> None:
    sure, unsure = draw_chances(row_of([90, 5, 5]), 3), draw_chances(row_of([40, 30, 30]), 3)
    assert sure[0] > unsure[0]
    assert sure[1] == pytest.approx(0.05 * 0.45) and sure[1] < unsure[1]

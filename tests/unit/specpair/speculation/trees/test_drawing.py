from collections import Counter
from itertools import permutations

import pytest
from scipy.stats import chisquare

from specpair.speculation.count_row import TOTAL, CountRow, count_row, draw_token
from specpair.speculation.randomness import Domain, draw_bits
from specpair.speculation.trees.drawing import DRAFT_STRIDE, draw_siblings, first_offset

ROW = count_row([3, 5, 8], [0.5, 0.3, 0.2])


def test_a_first_draw_is_that_of_a_chain() -> None:
    for step in range(50):
        expected = draw_token(ROW, draw_bits(1, Domain.DRAFT, step, 2))
        for replaces in (True, False):
            assert draw_siblings(ROW, 1, 1, step, 2, replaces=replaces) == [expected]


def test_siblings_without_replacement_differ_and_end_with_the_row() -> None:
    for step in range(50):
        assert sorted(draw_siblings(ROW, 5, 1, step, 0, replaces=False)) == [3, 5, 8]
    assert draw_siblings(CountRow([4], [TOTAL]), 3, 0, 0, 0, replaces=False) == [4]
    assert draw_siblings(CountRow([4], [TOTAL]), 2, 0, 0, 0, replaces=True) == [4, 4]


@pytest.mark.parametrize("replaces", [True, False])
def test_pairs_come_as_often_as_they_should(replaces: bool) -> None:
    count = 4000
    seen = Counter(tuple(draw_siblings(ROW, 2, 7, step, 0, replaces=replaces)) for step in range(count))
    chance = dict(zip(ROW.token_ids, (one / TOTAL for one in ROW.counts), strict=True))
    if replaces:
        wanted = {(a, b): chance[a] * chance[b] for a in chance for b in chance}
    else:
        wanted = {(a, b): chance[a] * chance[b] / (1 - chance[a]) for a, b in permutations(chance, 2)}
    assert set(seen) == set(wanted)
    assert chisquare([seen[pair] for pair in wanted], [count * one for one in wanted.values()]).pvalue > 1e-4


def test_drafts_of_one_tree_draw_by_different_numbers() -> None:
    assert first_offset(0) == 0
    assert first_offset(2) == 2 * DRAFT_STRIDE
    together = [(draw_siblings(ROW, 1, 7, step, first_offset(d), replaces=True)) for step in range(60) for d in (0, 1)]
    assert together[::2] != together[1::2]

"""How far two texts are the same."""

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from specpair.prefixes import STRETCH, common_length

TOKENS = st.lists(st.integers(0, 2), max_size=20)
BEGINNING = TOKENS | st.integers(STRETCH - 2, 2 * STRETCH + 2).map(lambda length: [*range(length)])


@given(BEGINNING, TOKENS, TOKENS)
def test_it_is_the_number_of_equal_tokens_before_the_first_other_one(
    both: list[int], first: list[int], second: list[int]
) -> None:
    first, second = both + first, both + second
    expected = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    assert common_length(first, second) == common_length(second, first) == expected

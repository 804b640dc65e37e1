"""Which instance takes a sequence."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from coordinator.peers.routing import PREFIX_LENGTH, Candidate, route

LOADS = st.lists(st.integers(0, 100), min_size=1, max_size=8)


def candidates(loads: list[int]) -> list[Candidate]:
    return [Candidate(f"host{index}:1", load) for index, load in enumerate(loads)]


@given(LOADS, st.lists(st.integers(0, 1000), max_size=80))
def test_no_one_is_chosen_who_has_much_more_to_do_than_another(loads: list[int], tokens: list[int]) -> None:
    chosen = loads[route(candidates(loads), tokens)]
    assert chosen <= min(loads) + max(2, 0.25 * min(loads))


@given(st.lists(st.integers(0, 1000), max_size=80), st.lists(st.integers(0, 1000), max_size=80))
def test_the_same_beginning_goes_to_the_same_place(tokens: list[int], rest: list[int]) -> None:
    beginning = (tokens + [7] * PREFIX_LENGTH)[:PREFIX_LENGTH]
    equal = candidates([3, 3, 3, 3])
    assert route(equal, beginning + rest) == route(equal, beginning)


def test_prompts_are_spread_evenly() -> None:
    counts = Counter(route(candidates([0] * 4), [i, i + 1]) for i in range(400))
    assert set(counts) == {0, 1, 2, 3} and min(counts.values()) > 60


def test_when_one_goes_the_prompts_of_the_others_stay() -> None:
    before = candidates([0] * 4)
    after = before[:3]
    for i in range(100):
        index = route(before, [i])
        assert index == 3 or route(after, [i]) == index

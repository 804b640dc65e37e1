"""How far beams are continued: at about the cost of the best length, which may be none, whatever passes cost."""

from collections.abc import Iterator, Mapping
from itertools import cycle

import pytest

from coordinator.adaptive.beam_lengths import LENGTHS, STRETCH, BeamLengths, SearchLength

DEAR = {0: 1.0, 1: 1.6, 2: 2.1, 4: 3.3}
"""Seconds of a pass where rows are dear, as on a processor."""
FLAT = {0: 1.0, 1: 1.1, 2: 1.2, 4: 1.4}
STEPS = {0: 1.0, 1: 1.4, 2: 1.6, 4: 1.7}
USELESS: Mapping[int, float] = {0: 1.0, 1: 1.0, 2: 1.0, 4: 1.0}


@pytest.fixture
def stalls() -> Iterator[float]:
    """How much longer each pass takes."""
    return cycle([1.0] * 28 + [20.0])


def search(
    lengths: SearchLength, seconds: Mapping[int, float], steps: Mapping[int, float], stalls: Iterator[float]
) -> float:
    """Runs a search of 50 steps; its time."""
    spent = taken = given = 0.0
    while given < 50:
        length = lengths.next(16)
        taken += steps[length]
        whole = int(taken) - int(given)
        given += whole
        now = seconds[length] * next(stalls)
        spent += now
        lengths.add(length, whole, now)
    return spent


def time_of(seconds: Mapping[int, float], steps: Mapping[int, float], length: int) -> float:
    """Of a search of 50 steps with this length, stalls included."""
    return 50 / steps[length] * seconds[length] * (28 + 20) / 29


@pytest.mark.parametrize(("seconds", "steps"), [(DEAR, STEPS), (FLAT, STEPS), (DEAR, USELESS), (FLAT, USELESS)])
def test_many_searches_cost_what_the_best_length_costs(
    seconds: Mapping[int, float], steps: Mapping[int, float], stalls: Iterator[float]
) -> None:
    shared = BeamLengths()
    spent = [search(shared.search(4, "draft", 16), seconds, steps, stalls) for _ in range(200)]
    best = min(time_of(seconds, steps, length) for length in LENGTHS)
    assert sum(spent[4:]) <= (1.05 if best == time_of(seconds, steps, 0) else 1.08) * best * len(spent[4:])


def test_a_draft_that_is_never_right_is_soon_left_alone(stalls: Iterator[float]) -> None:
    shared = BeamLengths()
    for _ in range(3):
        search(shared.search(4, "draft", 16), DEAR, USELESS, stalls)
    assert not shared.search(4, "draft", 16).opens_early
    assert shared.search(2, "draft", 16).opens_early, "other widths are other searches"


def test_it_follows_a_machine_that_changes(stalls: Iterator[float]) -> None:
    shared = BeamLengths()
    for _ in range(20):
        search(shared.search(4, "draft", 16), DEAR, USELESS, stalls)
    for _ in range(400):
        search(shared.search(4, "draft", 16), FLAT, STEPS, stalls)
    later = [search(shared.search(4, "draft", 16), FLAT, STEPS, stalls) for _ in range(50)]
    assert sum(later) <= 1.08 * 50 * min(time_of(FLAT, STEPS, length) for length in LENGTHS)


def test_without_a_draft_that_answers_it_learns_to_go_without() -> None:
    shared = BeamLengths()
    lengths = shared.search(1, "draft", 16)
    chosen = []
    for _ in range(400):
        chosen.append(lengths.next(16))
        lengths.add(0, 1, 1.0)
    assert chosen[:STRETCH] == [LENGTHS[0]] * STRETCH, "none is called useless before it was tried"
    assert not shared.search(1, "draft", 16).opens_early
    assert chosen[100:].count(0) >= 240 and set(chosen[100:]) == set(LENGTHS), "the draft may come back"


@pytest.mark.parametrize("outputs", [3, 4, 6])
def test_short_outputs_learn_from_the_lengths_that_fit(outputs: int) -> None:
    """Where a draft is of no use, and the longest length never fits a second pass."""
    shared = BeamLengths()
    chosen: list[int] = []
    for _ in range(100):
        lengths = shared.search(1, "draft", 16)
        for room in range(outputs - 2, -1, -1):
            chosen.append(lengths.next(room))
            assert chosen[-1] <= room
            lengths.add(chosen[-1], 1, DEAR[chosen[-1]])
    assert not shared.search(1, "draft", 16).opens_early
    assert chosen[50:].count(0) >= 0.9 * len(chosen[50:])


@pytest.mark.parametrize("most", [0, 1, 3])
def test_no_length_is_above_the_limit(most: int) -> None:
    lengths = BeamLengths().search(1, "draft", most)
    assert all(lengths.next(16) <= most for _ in range(100) for _ in [lengths.add(0, 1, 1.0)])

"""Times of passes by their size: where rows cost nothing, and from which size on they do."""

import pytest

from specpair.engine.gathering import SPARE, Gathering
from specpair.engine.pass_times import LATELY, SIZES, PassTimes


def level(tokens: int) -> float:
    """Level up to 24 tokens, steep beyond."""
    return 0.001 + 0.0001 * max(tokens - 24, 0)


def times_of(sizes: list[int], passes: int = 50) -> PassTimes:
    times = PassTimes()
    for _ in range(passes):
        for size in sizes:
            times.add(size, level(size))
    return times


def test_rows_cost_nothing_as_far_as_passes_were_seen_to_be_level() -> None:
    assert times_of([1, 8, 20, 32, 64]).within(1, 1.1) == 24
    assert times_of([1, 8, 20, 32, 64]).within(1, 2.0) == 32
    assert times_of([1, 8]).within(1, 1.1) == 8, "larger ones were not seen"
    assert times_of([1, 64]).within(1, 1.1) == 1


def test_a_size_that_was_not_seen_says_nothing() -> None:
    assert PassTimes().within(1, 2.0) == 0
    assert times_of([8, 16]).within(1, 2.0) == 0
    assert times_of([8, 16]).within(6, 2.0) == 0
    assert times_of([8, 16]).within(7, 2.0) == 16


def test_a_larger_size_that_happens_to_be_faster_is_not_taken() -> None:
    times = times_of([1, 64])
    for _ in range(50):
        times.add(16, 0.01)
        times.add(32, level(1))
    assert times.within(1, 1.1) == 1


def test_a_pass_above_all_sizes_is_left_out() -> None:
    times = times_of([1, 16])
    times.add(SIZES[-1] + 1, 1.0)
    assert times.seconds(SIZES[-1] + 1) == 0.0 and times.within(1, 1.1) == 16
    assert times.within(SIZES[-1] + 1, 2.0) == 0


def test_one_stall_hides_nothing() -> None:
    times = times_of([1, 16])
    times.add(16, 10.0)
    assert times.seconds(16) < 1.1 * level(16)


@pytest.mark.parametrize(("tokens", "spare"), [(1, 23), (8, 16), (24, 0)])
def test_a_pass_that_somebody_waits_for_takes_the_rows_that_were_seen_to_be_free(tokens: int, spare: int) -> None:
    """By a line through all passes, which is not level anywhere, there would be hardly any."""
    gathering = Gathering()
    for _ in range(50):
        for size in (1, 8, 24, 48, 64):
            gathering.add_pass(size, size, level(size))
    assert gathering.spare_rows(tokens) >= spare
    assert level(tokens + gathering.spare_rows(tokens)) <= (1.0 + 3 * SPARE) * level(tokens)


def test_between_two_sizes_the_time_is_on_the_line_between_them() -> None:
    times = PassTimes()
    for _ in range(64):
        for tokens, seconds in ((4, 0.011), (15, 0.012), (16, 0.014)):  # the last two are of one size
            times.add(tokens, seconds)
    assert times.between(4) == pytest.approx(0.011)
    middle = times.between(9)
    assert middle is not None and 0.011 < middle < 0.0135
    assert times.between(16) == times.seconds(16), "beyond the mean of the largest size"
    assert times.between(3) is None and times.between(17) is None and PassTimes().between(1) is None
    for _ in range(LATELY):
        times.add(4, 0.011)
    assert times.between(4) == pytest.approx(0.011) and times.between(16) is None, "not seen lately"

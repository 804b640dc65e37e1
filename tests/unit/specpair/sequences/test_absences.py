"""How long a sequence is expected to be away."""

import pytest

from specpair.sequences.absences import Absences

LIMIT = 0.01
AT_ONCE, LATER = 0.004, 0.022


def absences_of(*seconds: float) -> Absences:
    absences = Absences()
    for one in seconds:
        absences.add(one, LIMIT)
    return absences


def test_nothing_is_expected_before_the_first() -> None:
    assert Absences().expected(has_missed=False) is None and Absences().longest is None


@pytest.mark.parametrize("usual", [AT_ONCE, LATER])
def test_where_all_are_alike_the_mean_is_expected(usual: float) -> None:
    absences = absences_of(*[0.9 * usual, 1.1 * usual] * 20)
    for away in (0.0, usual, 10 * usual):
        assert absences.expected(away, has_missed=False) == pytest.approx(usual, rel=0.05)


def test_of_two_kinds_the_short_one_is_expected_until_it_is_overdue() -> None:
    absences = absences_of(*[AT_ONCE, LATER] * 10)
    assert (
        absences.expected(has_missed=False)
        == absences.expected(1.4 * AT_ONCE, has_missed=False)
        == pytest.approx(AT_ONCE)
    )
    assert absences.expected(1.6 * AT_ONCE, has_missed=False) == pytest.approx(LATER)
    assert absences.longest == pytest.approx(LATER)


def test_after_a_miss_a_long_one_is_expected() -> None:
    absences = absences_of(*[AT_ONCE, LATER] * 10)
    assert absences.expected(has_missed=True) == pytest.approx(LATER)
    absences.has_missed = True
    for _ in range(20):
        absences.add(LATER, LIMIT)
    assert absences.expected(has_missed=False) == pytest.approx(AT_ONCE), "misses say nothing about the others"


def test_where_few_are_short_a_long_one_is_expected() -> None:
    assert absences_of(AT_ONCE, *[LATER] * 10).expected(has_missed=False) == pytest.approx(LATER)


def test_a_stall_is_capped() -> None:
    expected = absences_of(LATER, LATER, 10.0).expected(has_missed=False)
    assert expected is not None and expected < 1.5 * LATER


def test_one_of_no_time_does_not_cap_all_others() -> None:
    assert absences_of(0.0, *[AT_ONCE] * 60).expected(has_missed=False) == pytest.approx(AT_ONCE, rel=0.01)


def test_how_much_long_ones_differ_is_known() -> None:
    assert absences_of(*[LATER] * 20, AT_ONCE, AT_ONCE).deviation == 0.0
    varied = absences_of(*[LATER - 0.005, LATER + 0.005] * 20)
    assert varied.deviation == pytest.approx(0.005, rel=0.2)
    stalled = absences_of(*[LATER] * 20, 10.0)
    assert stalled.deviation < 0.2 * LATER, "a stall is capped"


def test_the_first_long_one_may_be_a_stall() -> None:
    """A client that paused once for ten seconds."""
    absences = absences_of(*[AT_ONCE] * 10, 10.0)
    assert absences.longest == pytest.approx(4 * LIMIT)
    assert absences_of(10.0).longest == pytest.approx(4 * LIMIT)


def test_nothing_is_learnt_before_passes_are_known() -> None:
    absences = Absences()
    absences.add(0.5, 0.0)
    assert absences.longest is None


def test_a_short_one_has_an_end_where_there_are_long_ones() -> None:
    assert absences_of(AT_ONCE).longest_short > 1e9
    assert absences_of(AT_ONCE, LATER).longest_short == pytest.approx(1.5 * AT_ONCE)

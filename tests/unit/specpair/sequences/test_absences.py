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
    assert Absences().expected() is None and Absences().longest is None


@pytest.mark.parametrize("usual", [AT_ONCE, LATER])
def test_where_all_are_alike_the_mean_is_expected(usual: float) -> None:
    absences = absences_of(*[0.9 * usual, 1.1 * usual] * 20)
    for away in (0.0, usual, 10 * usual):
        assert absences.expected(away) == pytest.approx(usual, rel=0.05)


def test_of_two_kinds_the_short_one_is_expected_until_it_is_overdue() -> None:
    absences = absences_of(*[AT_ONCE, LATER] * 10)
    assert absences.expected() == absences.expected(1.4 * AT_ONCE) == pytest.approx(AT_ONCE)
    assert absences.expected(1.6 * AT_ONCE) == pytest.approx(LATER)
    assert absences.longest == pytest.approx(LATER)


def test_after_a_miss_a_long_one_is_expected() -> None:
    absences = absences_of(*[AT_ONCE, LATER] * 10)
    absences.has_missed = True
    assert absences.expected() == pytest.approx(LATER)
    for _ in range(20):
        absences.add(LATER, LIMIT)
    absences.has_missed = False
    assert absences.expected() == pytest.approx(AT_ONCE), "misses say nothing about the others"


def test_where_few_are_short_a_long_one_is_expected() -> None:
    assert absences_of(AT_ONCE, *[LATER] * 10).expected() == pytest.approx(LATER)


def test_a_stall_is_capped() -> None:
    expected = absences_of(LATER, LATER, 10.0).expected()
    assert expected is not None and expected < 1.5 * LATER


def test_one_of_no_time_does_not_cap_all_others() -> None:
    assert absences_of(0.0, *[AT_ONCE] * 60).expected() == pytest.approx(AT_ONCE, rel=0.01)

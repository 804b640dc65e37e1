"""How many rows work ahead may have."""

import pytest

from draft_service.ahead.allowance import LEAST_EACH, Allowance


def test_all_may_be_used_at_first() -> None:
    assert Allowance(64).rows(1) == Allowance(64).rows(8) == 64


def test_a_late_one_leaves_fewer_than_there_were() -> None:
    allowance = Allowance(64)
    allowance.note_late(20)
    assert allowance.rows(1) == 18


def test_each_sequence_keeps_a_few_as_long_as_all_have_them() -> None:
    allowance = Allowance(64)
    for _ in range(100):
        allowance.note_late(64)
    assert [allowance.rows(count) for count in (1, 8, 100)] == [LEAST_EACH, 8 * LEAST_EACH, 64]


def test_none_are_allowed_where_none_are_wanted() -> None:
    allowance = Allowance(0)
    allowance.note_in_time()
    assert allowance.rows(3) == 0


@pytest.mark.parametrize("possible", [5, 12, 40, 64, 100])
def test_as_many_are_found_as_come_in_time(possible: int) -> None:
    """A device on which proposals are late with more rows than `possible`: at first, and again after it was slower."""
    allowance, most = Allowance(64), min(possible, 64)
    for room in (possible, possible // 2, possible):
        late = 0
        for place in range(1500):
            rows = allowance.rows(1)
            if rows > room:
                allowance.note_late(rows)
                late += place >= 500
            else:
                allowance.note_in_time()
        assert late < 0.1 * 1000
    assert 0.85 * most <= allowance.rows(1) <= most + 1

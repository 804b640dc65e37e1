"""Fewer rows where proposals are late because of their number, and all of them where they are in time."""

from draft_service.ahead.row_budget import LEAST, RowBudget


def test_all_rows_are_given_as_long_as_proposals_are_in_time() -> None:
    budget = RowBudget(64)
    for _ in range(100):
        budget.in_time()
    assert budget.rows == 64


def test_what_is_late_leaves_fewer_rows_but_not_too_few() -> None:
    budget = RowBudget(64)
    for _ in range(5):
        budget.late(64, level=1)
    assert LEAST < budget.rows < 64
    for _ in range(1000):
        budget.late(budget.rows, level=1)
    assert budget.rows == LEAST
    for _ in range(10):
        budget.in_time()
    assert budget.rows > LEAST, "it comes back soon"
    for _ in range(1000):
        budget.in_time()
    assert budget.rows == 64


def test_rows_that_cost_no_time_are_not_the_cause() -> None:
    budget = RowBudget(64)
    for _ in range(1000):
        budget.late(32, level=32)
    assert budget.rows == 64, "fewer would have been as late"
    for _ in range(1000):
        budget.late(budget.rows, level=40)
    assert budget.rows == 40


def test_the_limit_is_kept() -> None:
    for most in (0, 4, 16):
        budget = RowBudget(most)
        budget.late(64, level=1)
        assert budget.rows <= most
        for _ in range(100):
            budget.in_time()
        assert budget.rows == most


def test_a_pair_finds_as_many_rows_as_are_in_time() -> None:
    """More than 40 rows are late."""
    budget, seen = RowBudget(64), list[int]()
    for _ in range(2000):
        rows = budget.rows
        seen.append(rows)
        if rows > 40:
            budget.late(rows, level=1)
        else:
            budget.in_time()
    assert 36 <= sum(seen[1000:]) / 1000 <= 44

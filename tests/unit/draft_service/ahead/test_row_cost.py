"""What a prepared proposal costs follows the speed of the interpreter."""

import pytest

from draft_service.ahead import row_cost
from draft_service.ahead.row_cost import ALONE_SECONDS, BYTES, INTERVAL, MEMORY, PART, RowCost


class Machine:
    """A machine whose loop takes a given time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.used = 100.0, 0.0
        self.loop_seconds = 0.0001
        monkeypatch.setattr(row_cost.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(row_cost.time, "thread_time", self._thread_time)

    def _thread_time(self) -> float:
        """Asked before and after each run."""
        self.used += self.loop_seconds / 2
        self.used, used = self.used + self.loop_seconds / 2, self.used
        return used


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def extra(cost: RowCost) -> float:
    """What another sequence adds."""
    return cost.seconds(2) - ALONE_SECONDS


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_on_a_slower_processor_it_is_more(machine: Machine, factor: float) -> None:
    machine.loop_seconds *= factor
    cost = RowCost()
    assert [cost.seconds(count) - ALONE_SECONDS for count in (1, 2, 8)] == pytest.approx(
        [others * PART * factor * 0.0001 for others in (0, 1, 7)]
    )


def test_it_follows_a_processor_that_becomes_slower(machine: Machine) -> None:
    cost = RowCost()
    before = extra(cost)
    machine.loop_seconds *= 2
    machine.now += INTERVAL / 2
    assert extra(cost) == before, "not yet"
    seen = []
    for _ in range(30):
        machine.now += INTERVAL
        seen.append(extra(cost))
    assert seen[0] == pytest.approx((1 + 1 / MEMORY) * before), "one run may be an odd one"
    assert seen[-1] == pytest.approx(2 * before, rel=0.01)


def test_it_is_measured_as_seldom_as_it_says(machine: Machine) -> None:
    cost, used = RowCost(), machine.used
    for _ in range(1000):
        machine.now += INTERVAL / 100
        cost.seconds(8)
    assert 9 <= (machine.used - used) / (2 * machine.loop_seconds) <= 10


def test_what_is_large_costs_more(machine: Machine) -> None:
    cost = RowCost()
    assert cost.seconds(8, 2 * BYTES) == pytest.approx(3 * cost.seconds(8))

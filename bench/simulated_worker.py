"""A processor of a simulated machine."""

from collections.abc import Callable
from typing import Protocol

from bench.simulated_machine import Machine


class Clock(Protocol):
    """The time of a simulation, and what happens later."""

    machine: Machine
    now: float

    def after(self, delay: float, action: Callable[[], None]) -> None: ...


class Worker:
    """A processor that does one thing at a time, and is slower while its neighbour works."""

    def __init__(self, simulation: Clock):
        self._simulation = simulation
        self.neighbour: Worker | None = None
        self.is_busy = False
        self._left = 0.0
        self._since = 0.0
        self._rate = 1.0
        self._serial = 0
        self._then: Callable[[], None] = lambda: None

    def work(self, time: float, then: Callable[[], None]) -> None:
        assert not self.is_busy
        self.is_busy, self._left, self._then = True, time, then
        self._since = self._simulation.now
        self._schedule()
        if self.neighbour is not None:
            self.neighbour.disturb()

    def disturb(self) -> None:
        """The neighbour begins or ends work."""
        if self.is_busy:
            self._left -= (self._simulation.now - self._since) * self._rate
            self._since = self._simulation.now
            self._schedule()

    def _schedule(self) -> None:
        is_alone = self.neighbour is None or not self.neighbour.is_busy
        self._rate = 1.0 if is_alone else 1.0 / (1.0 + self._simulation.machine.contention)
        self._serial += 1
        serial = self._serial
        self._simulation.after(self._left / self._rate, lambda: self._end(serial))

    def _end(self, serial: int) -> None:
        if serial != self._serial or not self.is_busy:
            return
        self.is_busy = False
        if self.neighbour is not None:
            self.neighbour.disturb()
        self._then()

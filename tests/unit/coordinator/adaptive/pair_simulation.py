"""A pair that takes no time: draft, target and the loops of several outputs, event by event.

Both services batch as the real ones do: a pass serves all that wait when it begins, and a draft takes in who comes
between two of its steps. Times are in microseconds of a clock that is only counted.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.adaptive import Decision, RoundOutcome
from coordinator.adaptive.draft_activity import DraftActivity

LONGEST = 16

Rates = tuple[float, float, float]
"""The chance that a token is accepted if those before it are: the first of a block, the second, later ones."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What things take, in microseconds."""

    pass_time: float = 9000.0
    """A pass of the target with one row."""
    row_time: float = 250.0
    """Each further row."""
    step_time: float = 500.0
    """A step of the draft."""
    step_row_time: float = 20.0
    """Each further sequence in it."""
    call_time: float = 300.0
    """A call there and back."""
    loop_time: float = 200.0
    """The coordinator's own work in a round."""
    contention: float = 0.0
    """By how much target and draft slow each other down while both work."""
    noise: float = 0.08
    """Standard deviation of all times, relative."""
    stall_chance: float = 0.01
    stall_factor: float = 4.0


@dataclass(frozen=True, kw_only=True)
class Text:
    """What an output is going to be."""

    length: int = 128
    rates: Callable[[int], Rates]
    """By the number of tokens that it has."""
    coverage: float = 1.0
    """The chance that the draft knows anything to propose."""


class Policy(Protocol):
    """Who decides about the blocks of an output."""

    def decide(self, longest: int) -> Decision: ...
    def add(self, outcome: RoundOutcome) -> None: ...
    def leave(self) -> None: ...


class FixedLength:
    """Always the same number."""

    def __init__(self, length: int):
        self._length = length

    def decide(self, longest: int) -> Decision:
        return Decision(min(self._length, longest))

    def add(self, outcome: RoundOutcome) -> None:
        """Learns nothing."""

    def leave(self) -> None:
        """Holds nothing."""


@dataclass(eq=False)
class Output:
    """One output and where it is in its round."""

    text: Text
    policy: Policy
    token_count: int = 0
    lengths: list[int] = field(default_factory=list)
    """Tokens asked for, round by round."""
    round_start: float = 0.0
    asked: int = 0
    drafted: int = 0
    draft_start: float = 0.0
    draft_elapsed: float = 0.0
    draft_compute_start: float = 0.0
    draft_compute: float = 0.0
    verify_start: float = 0.0
    activity: float = 0.0


class Worker:
    """A processor that does one thing at a time, more slowly while its neighbour works."""

    def __init__(self, simulation: "Simulation"):
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
        """The neighbour begins or ends."""
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


class Simulation:
    """The clock, the pair and the outputs."""

    def __init__(self, machine: Machine, seed: int = 0, activity: DraftActivity | None = None):
        self.machine = machine
        self.now = 0.0
        self.pace = 1.0
        """All times are multiplied by it."""
        self.token_count = 0
        self.round_count = 0
        self.on_finish: Callable[[Output], None] = lambda output: None
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_count = 0
        self._activity = activity or DraftActivity()
        self._target, self._draft = Worker(self), Worker(self)
        self._target.neighbour, self._draft.neighbour = self._draft, self._target
        self._verifying: list[Output] = []
        self._drafting: list[Output] = []

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (self.now + delay, self._event_count, action))

    def run(self, *, tokens: int) -> float:
        """Until so many tokens more have come; returns the time that it took."""
        start, goal = self.now, self.token_count + tokens
        while self._events and self.token_count < goal:
            self.now, _, action = heapq.heappop(self._events)
            action()
        return self.now - start

    def start(self, output: Output) -> None:
        output.round_start = self.now
        self._begin_round(output)

    def _noisy(self, time: float) -> float:
        machine = self.machine
        factor = max(self._random.gauss(1.0, machine.noise), 0.3)
        if self._random.random() < machine.stall_chance:
            factor *= machine.stall_factor
        return time * factor * self.pace

    def _half_a_call(self) -> float:
        return self._noisy(self.machine.call_time / 2)

    def _begin_round(self, output: Output) -> None:
        longest = min(LONGEST, output.text.length - output.token_count - 1)
        output.asked = output.policy.decide(max(longest, 0)).length
        output.lengths.append(output.asked)
        output.drafted = 0
        output.draft_elapsed = output.draft_compute = 0.0
        then = self._call_draft if output.asked else self._call_target
        self.after(self._noisy(self.machine.loop_time), lambda: then(output))

    def _call_draft(self, output: Output) -> None:
        output.draft_start = self.now
        output.draft_compute_start = 0.0
        self._activity.begin(self.now)
        if self._random.random() < output.text.coverage:
            self.after(self._half_a_call(), lambda: self._queue_draft(output))
        else:
            self.after(self._half_a_call() + self._half_a_call(), lambda: self._end_draft(output))

    def _queue_draft(self, output: Output) -> None:
        self._drafting.append(output)
        self._step()

    def _step(self) -> None:
        if self._draft.is_busy or not self._drafting:
            return
        batch = list(self._drafting)
        for output in batch:
            output.draft_compute_start = output.draft_compute_start or self.now
        time = self.machine.step_time + self.machine.step_row_time * (len(batch) - 1)
        self._draft.work(self._noisy(time), lambda: self._end_step(batch))

    def _end_step(self, batch: list[Output]) -> None:
        for output in batch:
            output.drafted += 1
            if output.drafted == output.asked:
                self._drafting.remove(output)
                output.draft_compute = self.now - output.draft_compute_start
                self.after(self._half_a_call(), lambda output=output: self._end_draft(output))
        self._step()

    def _end_draft(self, output: Output) -> None:
        output.draft_elapsed = self.now - output.draft_start
        self._activity.end(self.now)
        self._call_target(output)

    def _call_target(self, output: Output) -> None:
        output.verify_start = self.now
        output.activity = self._activity.integral(self.now)
        self.after(self._half_a_call(), lambda: self._queue_verification(output))

    def _queue_verification(self, output: Output) -> None:
        self._verifying.append(output)
        self._pass()

    def _pass(self) -> None:
        if self._target.is_busy or not self._verifying:
            return
        batch, self._verifying = self._verifying, []
        rows = sum(output.drafted + 1 for output in batch)
        start = self.now
        time = self._noisy(self.machine.pass_time + self.machine.row_time * (rows - 1))
        self._target.work(time, lambda: self._end_pass(batch, rows, start))

    def _end_pass(self, batch: list[Output], rows: int, start: float) -> None:
        compute = self.now - start
        for output in batch:
            self.after(self._half_a_call(), lambda output=output: self._commit(output, rows, compute))
        self._pass()

    def _commit(self, output: Output, rows: int, compute: float) -> None:
        rates = output.text.rates(output.token_count)
        accepted = 0
        while accepted < output.drafted and self._random.random() < rates[min(accepted, 2)]:
            accepted += 1
        company = (self._activity.integral(self.now) - output.activity) / (self.now - output.verify_start)
        outcome = RoundOutcome(
            asked=output.asked,
            drafted=output.drafted,
            accepted=accepted,
            elapsed=self.now - output.round_start,
            period=self.now - output.round_start,
            draft_elapsed=output.draft_elapsed,
            draft_compute=output.draft_compute,
            verify_compute=compute,
            batch_token_count=rows,
            draft_company=company,
        )
        output.round_start = self.now
        output.policy.add(outcome)
        output.token_count += accepted + 1
        self.token_count += accepted + 1
        self.round_count += 1
        if output.token_count >= output.text.length:
            output.policy.leave()
            self.on_finish(output)
        else:
            self._begin_round(output)


def keep_busy(simulation: Simulation, make_output: Callable[[], Output], load: int) -> list[Output]:
    """So many outputs at any time: each that ends is followed by another. Returns the finished ones, as they come."""
    finished: list[Output] = []

    def follow(output: Output) -> None:
        finished.append(output)
        simulation.start(make_output())

    simulation.on_finish = follow
    for _ in range(load):
        simulation.start(make_output())
    return finished

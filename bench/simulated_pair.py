"""A simulated pair: draft, target and the loops of several outputs, event by event, on a simulated clock.

Both services batch as the real ones do: a pass serves all outputs that wait when it begins; a draft adds new outputs
between two of its steps. A prompt is fed to the target in one pass, and to the draft in parallel once tokens are asked
for. Times are in microseconds.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Protocol

from bench.simulated_machine import Machine, Text
from bench.simulated_worker import Worker
from coordinator.adaptive import Decision, RoundOutcome
from coordinator.adaptive.ahead_outcome import AheadOutcome
from specpair.engine.gathering import Gathering
from specpair.sequences.absences import Absences

LONGEST = 16
USUAL_BACKLOG = 32
"""Tokens that a draft can read with a proposal without notable extra time."""
CONFIDENCE_POWER = 2.0
"""The draft's probability of a token is this power of its acceptance chance, as measured on the bundled pair."""


class SimulatedRound(NamedTuple):
    """A `RoundOutcome`. Times are in microseconds."""

    asked: int
    drafted_count: int
    accepted_count: int
    elapsed: float
    period: float
    draft_elapsed: float
    draft_compute: float
    verify_compute: float
    batch_token_count: int
    is_usual: bool = True
    is_passed_over: bool = False
    ahead: AheadOutcome | None = None
    works_ahead: bool = False

    @property
    def depth(self) -> int:
        return self.drafted_count


class Policy(Protocol):
    """Chooses the length of an output's blocks."""

    def opens_early(self, longest: int) -> bool: ...
    def decide(self, longest: int, *, is_ready: bool) -> Decision: ...
    def add(self, outcome: RoundOutcome) -> None: ...
    def leave(self) -> None: ...


class FixedLength:
    """Always chooses the same length."""

    def __init__(self, length: int):
        self._length = length

    def opens_early(self, longest: int) -> bool:
        return min(self._length, longest) > 0

    def decide(self, longest: int, *, is_ready: bool) -> Decision:
        length = min(self._length, longest)
        return Decision(length if is_ready else 0, opens_draft=length > 0 and not is_ready)

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
    wanted: int = 0
    """Tokens that the draft will propose: fewer than asked if it is not confident."""
    drafted: int = 0
    chances: list[float] = field(default_factory=list)
    """For each proposed token, the chance that it is accepted if all before it are."""
    fed: int | None = None
    """Tokens that the draft has read; None before it has read the prompt."""
    is_opening: bool = False
    is_usual: bool = True
    """Whether its last proposal opened no sequence and had few tokens to catch up."""
    draft_start: float = 0.0
    draft_elapsed: float = 0.0
    draft_compute_start: float = 0.0
    draft_compute: float = 0.0
    answered_at: float = 0.0
    """When the target last answered it, in seconds, as Gathering has times."""
    absences: Absences = field(default_factory=Absences)
    """What Gathering knows of the time from an answer to the next call."""
    is_followed: bool = False
    """Whether its next call was there when it was answered; never here."""


@dataclass(eq=False)
class Call:
    """A verification that waits for a pass: what Gathering reads of a work. Times are in seconds."""

    sequence: Output
    submitted_at: float
    is_midway: bool = False
    is_background: bool = False
    is_followed: bool = False
    has_missed: bool = False


@cache
def is_stalled(seed: int, period: int, chance: float) -> bool:
    """Whether what begins in a period stalls: the same for every policy, since one stall may outweigh all else."""
    return random.Random(f"{seed} {period}").random() < chance


class Simulation:
    """The clock, the pair and the outputs."""

    def __init__(self, machine: Machine, seed: int = 0):
        self.machine = machine
        self.now = 0.0
        self.pace: Callable[[float], float] = lambda now: 1.0
        """Factor of all times, by the time."""
        self.token_count = 0
        self.round_count = 0
        self.on_finish: Callable[[Output], None] = lambda output: None
        self._seed = seed
        self._slow_starts = machine.slow_starts
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_count = 0
        self._target, self._draft = Worker(self), Worker(self)
        self._target.neighbour, self._draft.neighbour = self._draft, self._target
        self._gathering: Any = Gathering()
        self._verifying: list[Call] = []
        self._drafting: list[Output] = []
        self._prompts: list[Output] = []
        """Outputs whose prompts the target must read."""
        self._openings: list[Output] = []
        """Outputs whose prompts the draft must read."""

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (self.now + delay, self._event_count, action))

    def run(self, *, tokens: int) -> float:
        """Runs until this many more tokens are generated; returns the elapsed time."""
        start, goal = self.now, self.token_count + tokens
        while self._events and self.token_count < goal:
            self.now, _, action = heapq.heappop(self._events)
            action()
        return self.now - start

    def start(self, output: Output) -> None:
        """Adds an output: the target reads its prompt, and so does the draft if tokens will be asked for."""
        if output.text.prompt == 0:
            output.fed = 0
            self._begin(output)
            return
        if output.policy.opens_early(LONGEST):
            self._open(output)
        self._prompts.append(output)
        self._pass()

    def _begin(self, output: Output) -> None:
        output.round_start = self.now
        self._begin_round(output)

    def _open(self, output: Output) -> None:
        output.is_opening = True
        self._openings.append(output)
        self._step()

    def _noisy(self, time: float) -> float:
        machine = self.machine
        factor = max(self._random.gauss(1.0, machine.noise), 0.3)
        if is_stalled(self._seed, int(self.now / machine.pass_time), machine.stall_chance):
            factor *= machine.stall_factor
        return time * factor * self.pace(self.now)

    def _half_a_call(self) -> float:
        return self._noisy(self.machine.call_time / 2)

    def _begin_round(self, output: Output) -> None:
        longest = max(min(LONGEST, output.text.length - output.token_count - 1), 0)
        is_ready = output.fed is not None
        decision = output.policy.decide(longest, is_ready=is_ready)
        if decision.opens_draft and not output.is_opening:
            self._open(output)
        output.asked = decision.length if is_ready else 0
        self._foresee(output, decision.min_confidence)
        output.lengths.append(output.asked)
        output.drafted = 0
        output.draft_elapsed = output.draft_compute = 0.0
        then = self._call_draft if output.asked else self._call_target
        self.after(self._noisy(self.machine.loop_time), lambda: then(output))

    def _foresee(self, output: Output, min_confidence: float) -> None:
        """Draws the acceptance chance of each proposed token, and after which token the draft stops."""
        rates, output.chances, confidence = output.text.rates(output.token_count), [], 1.0
        for position in range(output.asked):
            chance = rates[min(position, 2)]
            if output.text.has_confidence:
                chance = self._random.betavariate(chance + 0.01, 1.01 - chance)
            output.chances.append(chance)
            confidence *= chance**CONFIDENCE_POWER
            if confidence < min_confidence:
                break
        output.wanted = len(output.chances)

    def _call_draft(self, output: Output) -> None:
        output.draft_start = self.now
        output.draft_compute_start = 0.0
        if self._random.random() < output.text.coverage:
            self.after(self._half_a_call(), lambda: self._queue_draft(output))
        else:
            self.after(self._half_a_call() + self._half_a_call(), lambda: self._end_draft(output))

    def _queue_draft(self, output: Output) -> None:
        self._drafting.append(output)
        self._step()

    def _step(self) -> None:
        if self._draft.is_busy or not (self._drafting or self._openings):
            return
        batch, openings, self._openings = list(self._drafting), self._openings, []
        rows = sum(output.text.prompt for output in openings)
        begins = [output for output in batch if not output.draft_compute_start]
        for output in begins:
            rows += self._catch_up(output)
            output.draft_compute_start = self.now
        sequences = len(batch) + len(openings)
        time = self.machine.step_time + self.machine.step_row_time * (sequences - 1) + self.machine.feed_row_time * rows
        if begins:
            time += self.machine.start_time
        if (begins or openings) and self._slow_starts:
            self._slow_starts -= 1
            time += self.machine.slow_start_time
        self._draft.work(self._noisy(time), lambda: self._end_step(batch, openings))

    def _catch_up(self, output: Output) -> int:
        """Tokens that the draft must read before it proposes, beyond those of a usual round."""
        known = output.text.prompt + output.token_count
        backlog = known - (output.fed or 0)
        output.is_usual = not output.is_opening and backlog <= USUAL_BACKLOG
        output.is_opening, output.fed = False, known
        return max(backlog - 1, 0)

    def _end_step(self, batch: list[Output], openings: list[Output]) -> None:
        for output in openings:
            output.fed = output.text.prompt
        for output in batch:
            output.drafted += 1
            if output.drafted == output.wanted:
                self._drafting.remove(output)
                output.draft_compute = self.now - output.draft_compute_start
                self.after(self._half_a_call(), lambda output=output: self._end_draft(output))
        self._step()

    def _end_draft(self, output: Output) -> None:
        output.draft_elapsed = self.now - output.draft_start
        self._call_target(output)

    def _call_target(self, output: Output) -> None:
        longer = self.machine.token_time * output.drafted
        self.after(self._half_a_call() + longer, lambda: self._queue_verification(output))

    def _queue_verification(self, output: Output) -> None:
        self._verifying.append(Call(output, self.now * 1e-6))
        self._gathering.arrive(self._verifying[-1:])
        self._pass()

    def _pass(self) -> None:
        if self._target.is_busy or not (self._verifying or self._prompts):
            return
        if patience := self._gathering.patience(self._verifying, self.now * 1e-6):
            self.after(patience * 1e6 + 1.0, self._pass)
            return
        batch, self._verifying = [call.sequence for call in self._verifying], []
        prompts, self._prompts = self._prompts, []
        rows = sum(output.drafted + 1 for output in batch) + sum(output.text.prompt for output in prompts)
        start = self.now
        self._target.work(
            self._noisy(self.machine.target_time(rows)), lambda: self._end_pass(batch, prompts, rows, start)
        )

    def _end_pass(self, batch: list[Output], prompts: list[Output], rows: int, start: float) -> None:
        compute = self.now - start
        if not prompts:
            self._gathering.add_pass(len(batch), rows, compute * 1e-6)
        self._gathering.leave([Call(output, 0.0) for output in batch], self.now * 1e-6)
        for output in batch:
            self.after(self._half_a_call(), lambda output=output: self._commit(output, rows, compute))
        for output in prompts:
            self.after(self._half_a_call(), lambda output=output: self._begin(output))
        self._pass()

    def _commit(self, output: Output, rows: int, compute: float) -> None:
        accepted = 0
        while accepted < output.drafted and self._random.random() < output.chances[accepted]:
            accepted += 1
        outcome = SimulatedRound(
            asked=output.asked,
            drafted_count=output.drafted,
            accepted_count=accepted,
            elapsed=self.now - output.round_start,
            period=self.now - output.round_start,
            draft_elapsed=output.draft_elapsed,
            draft_compute=output.draft_compute,
            verify_compute=compute,
            batch_token_count=rows,
            is_usual=output.is_usual or not output.asked,
        )
        output.round_start = self.now
        output.policy.add(outcome)
        output.token_count += accepted + 1
        self.token_count += accepted + 1
        self.round_count += 1
        if output.token_count >= output.text.length:
            self._gathering.forget(output)
            output.policy.leave()
            self.on_finish(output)
        else:
            self._begin_round(output)

"""What proposals of one drafter take, at one level of load."""

from collections import deque

from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.running_mean import MOST_LATE, RunningMean, UsualMean
from specpair.running_slope import RunningSlope

MEMORY = 64
"""Proposals of each output over which times are averaged."""
STEP_MEMORY = 512
"""Proposals of each output from which what one more token takes is learned: many, since only those count that differ in
length from the ones before."""
STEP_WEIGHT = 1.0 / 128
"""The weight of a step's time as its prior: a mean squared deviation of lengths."""
SETTLED = 16
"""Quick proposals after which a slow one is a stall again."""
NEIGHBOURS = 2
"""Proposals of each output with which one is compared to learn what a step takes: few, because the machine's speed
changes, and blocks are shorter where it has just been slow."""


class DraftCosts:
    """A proposal of k tokens takes `rest + step * k`."""

    def __init__(self) -> None:
        self.published_step = 0.0
        """Seconds of a step as the draft measured it at its start; 0 if unknown, or without a model."""
        self.drafted_share = RunningMean(MEMORY)
        """Tokens that the draft proposed, of those that it was asked for."""
        self._may_be_slow = False
        """Whether slow calls were forgotten, and not enough quick ones have shown that there are none any more."""
        self._forget()

    def _forget(self) -> None:
        """Drops all times that were measured."""
        self.count = 0
        """Proposals that were measured."""
        self._rest = UsualMean(MEMORY)
        self._step = UsualMean(MEMORY)
        """The draft's computation for each of its tokens, the start of a call included."""
        self._steps = RunningSlope(STEP_MEMORY, NEIGHBOURS)
        self._growing = UsualMean(MEMORY)
        """What grows with the tokens of a proposal."""
        self._lengths: deque[int] = deque()
        """Tokens of the latest proposals, one of each other output."""
        self._counted = RunningMean(MEMORY)
        """Share of the proposals that say something of a step."""

    @property
    def rest(self) -> float:
        return self._rest.value

    @property
    def step(self) -> float:
        """What one more token takes beside the target's pass. In the draft that is less than the mean, since the first
        also pays for the start of the call."""
        return self._steps.slope(self.published_step or self._step.value, STEP_WEIGHT * self._steps.memory)

    def assume(self, rest: float, step: float) -> None:
        """Takes these until a proposal was measured; the step, unless it is 0, stays as a prior."""
        self.published_step = step
        if not self.count:
            self._rest.value = rest

    def doubt(self, elapsed: float, drafted: int) -> None:
        """A proposal of so many tokens took `elapsed`, whatever it had to read first. Anything may be late, but nothing
        is early: if it took far less than usual, what was measured are stalls. The first calls of a service may be, and
        where nothing is proposed any more no usual one would follow."""
        if self.count and 0.0 < MOST_LATE * elapsed < self.rest + self.step * drafted:
            self._forget()
            self._may_be_slow = True

    def add(self, outcome: RoundOutcome, load: int, proposing: int) -> None:
        """Adds a round with a proposal, while `load` outputs ran, of which `proposing` proposed. Their proposals are
        drawn in the same steps, so those of fewer tokens take as long as the longest beside them, and say nothing about
        a step."""
        self.count += 1
        drafted, compute = outcome.depth, outcome.draft_compute or 0.0
        self.drafted_share.add(drafted / outcome.asked)
        counts = 0 < drafted >= max(self._lengths, default=0)
        self._counted.add(float(counts))
        if counts:
            self._step.add_usual(compute / drafted)
            # A token also makes calls longer, which shows where no output waits for others.
            growing = outcome.elapsed - outcome.verify_compute if load == 1 else compute
            self._steps.memory = STEP_MEMORY * load
            self._steps.mean_memory = max(NEIGHBOURS, round(NEIGHBOURS * load * self._counted.value))
            self._steps.add(drafted, self._growing.add_usual(growing))
        self._lengths.append(drafted)
        while len(self._lengths) >= max(proposing, 1):
            self._lengths.popleft()
        self._add_rest(max(outcome.draft_elapsed - self.step * drafted, 0.0))

    def _add_rest(self, rest: float) -> None:
        """Of a draft that is slow at times, it is the slow calls that count."""
        if self._may_be_slow and self.count > 1 and rest > MOST_LATE * self._rest.value:
            self._rest = UsualMean(MEMORY)
            self._may_be_slow = False
        elif self.count > SETTLED:
            self._may_be_slow = False
        self._rest.add_usual(rest)

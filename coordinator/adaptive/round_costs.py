"""What rounds cost with one drafter under one load."""

from typing import NamedTuple

from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.running_mean import RunningMean
from specpair.running_slope import RunningSlope

REST_MEMORY = 10
"""Rounds of each output over which the time of a round without its draft part is averaged: it follows the machine."""
DRAFT_MEMORY = 64
"""Proposals over which the draft's time is averaged."""
ROW_MEMORY = 256
"""Rounds of each output from which the cost of a row is learned: it changes little, and one sample says little."""
ROW_PRIOR = 0.02
"""Time of one more row in the target's pass, in passes, until it is measured."""
ROW_WEIGHT = 6.0
"""What that counts for, as a sum of squared deviations."""


LEAST_REST = 0.1
"""Share of a round that the rest is at least, whatever the estimates say."""
MOST_LATE = 4.0
"""A round, a pass or a step counts as at most so many times the usual: anything may stall on a shared machine."""
SHARE_MEMORY = 8
"""Rounds of each output over which the share of those with proposals is followed."""
MINORITY = 0.25
"""Share up to which a round with proposals, among plain ones, tells by how much its rest differs from theirs."""
RATIO_MEMORY = 48
RATIO_PRIOR = 8
"""Samples that a ratio of 1 counts for at first."""
MOST_RATIO = 2.0
"""What a sample counts for at most: among few of them one stall weighs much."""


class RoundTimes(NamedTuple):
    """What a round would take now: `plain` without proposals, `base + (step + row) * k` with k tokens asked for."""

    plain: float
    base: float
    step: float
    """What the draft takes for a token. One that it is asked for counts in full: it may stop before, but where that is
    why a long block is cheap, the block gives little as well."""
    row: float
    """What the target takes for a token that is asked for: all outputs in the same pass wait for it."""


class RoundCosts:
    """Running estimates. A round is the draft's part, the rows of the proposal, and a rest that all rounds share.

    The rest is learned from rounds of both kinds, so that what a plain round would take is known while there is none.
    """

    def __init__(self) -> None:
        self.plain_count = 0
        """Plain rounds that were measured."""
        self.proposing_count = 0
        """Rounds with proposals that were measured."""
        self._rest = RunningMean(REST_MEMORY)
        self._step = RunningMean(DRAFT_MEMORY)
        self._draft_rest = RunningMean(DRAFT_MEMORY)
        """What the draft's part takes beside its steps."""
        self._share = RunningMean(SHARE_MEMORY)
        self._ratio = RunningMean(RATIO_MEMORY)
        self._ratio.value, self._ratio.count = 1.0, RATIO_PRIOR
        """The rest of rounds with proposals to that of plain ones: a draft on the same processor slows the target."""
        self._drafted_share = RunningMean(DRAFT_MEMORY)
        self._pass = RunningMean(ROW_MEMORY)
        self._rows = RunningSlope(ROW_MEMORY)

    @property
    def plain_time(self) -> float | None:
        """A round without proposals now; None before rounds of both kinds were measured."""
        return self._rest.value if self.plain_count and self.proposing_count else None

    def add(self, outcome: RoundOutcome, load: int, most_rows: int) -> None:
        """A round while there were `load` outputs; passes of more than `most_rows` tokens fed a prompt as well."""
        if not outcome.is_usual or outcome.batch_token_count > most_rows:
            return
        self._rest.memory = REST_MEMORY * load
        self._rows.memory = self._pass.memory = ROW_MEMORY * load
        self._add_pass(outcome.batch_token_count, outcome.verify_compute)
        self._share.memory = SHARE_MEMORY * load
        self._share.add(outcome.asked > 0)
        rest = outcome.elapsed - outcome.draft_elapsed - self._row() * outcome.drafted_count
        rest = max(rest, LEAST_REST * outcome.elapsed)
        if outcome.asked:
            if self.plain_count and self._share.value <= MINORITY:
                self._ratio.add(min(rest / self._rest.value, MOST_RATIO))
            rest /= self._ratio.value
        add_usual(self._rest, rest)
        if not outcome.asked:
            self.plain_count += 1
            return
        self.proposing_count += 1
        draft_compute = outcome.draft_compute or 0.0
        add_usual(self._draft_rest, outcome.draft_elapsed - draft_compute)
        self._drafted_share.add(outcome.drafted_count / outcome.asked)
        if outcome.drafted_count:
            add_usual(self._step, draft_compute / outcome.drafted_count)

    def _add_pass(self, rows: int, time: float) -> None:
        """A pass of the target. A stall is one by what so many rows usually take: a full pass is none."""
        if self._rows.count:
            row = self._row()
            usual = max(self._rows.intercept(row) + row * rows, self._pass.value)
            time = min(time, MOST_LATE * usual)
        self._pass.add(time)
        self._rows.add(rows, time)

    def times(self) -> RoundTimes:
        """All 0 before a round was measured; without any with proposals, these seem to cost nothing."""
        plain = self._rest.value
        base = self._ratio.value * plain + self._draft_rest.value
        return RoundTimes(plain, base, self._step.value, self._row() * self._drafted_share.value)

    def _row(self) -> float:
        return self._rows.slope(ROW_PRIOR * self._pass.value, ROW_WEIGHT)


def add_usual(mean: RunningMean, sample: float) -> float:
    """Adds a sample, or as much of it as is usual; returns what was added."""
    if mean.value > 0.0:
        sample = min(sample, MOST_LATE * mean.value)
    mean.add(sample)
    return sample

"""Cost of rounds with one drafter at one level of load."""

from typing import NamedTuple

from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.running_mean import RunningMean
from specpair.running_slope import RunningSlope

REST_MEMORY = 10
"""Rounds of each output over which the rest of a round is averaged; few, to follow the machine's speed."""
DRAFT_MEMORY = 64
"""Proposals over which the draft's time is averaged."""
ROW_MEMORY = 100
"""Rounds of each output from which the cost of a row is learned: many, because samples are noisy, but a phase in which
other work slows the machine has to pass."""
ROW_PRIOR = 0.02
"""Time of one more row, as a share of a pass, until it is measured."""
ROW_WEIGHT = 20.0
"""The weight of ROW_PRIOR, as a sum of squared deviations."""
STEP_WEIGHT = 0.06
"""The weight of the mean time for a token, as the prior of what one more token takes: a mean squared deviation."""
NEIGHBOURS = 2
"""Rounds of each output with which a pass or a draft is compared to learn what a row or a step takes: few, because the
machine's speed changes, and blocks are shorter where it has just been slow."""

LEAST_REST = 0.1
"""The rest is at least this share of a round, whatever the estimates say."""
MOST_LATE = 4.0
"""A round, a pass or a step counts as at most this many times the usual: anything may stall on a shared machine."""
SHARE_MEMORY = 8
"""Rounds of each output over which the share of those with proposals is followed."""
MINORITY = 0.25
"""Up to this share of rounds with proposals, they are compared with the plain rounds around them (`_ratio`); not with
a single output, whose draft and target never work at the same time."""
RATIO_MEMORY = 48
RATIO_PRIOR = 8
"""Weight of the initial ratio of 1, in samples."""
MOST_RATIO = 2.0
"""Upper bound of a sample: among few samples one stall weighs much."""


class RoundTimes(NamedTuple):
    """Estimated time of a round: `plain` without proposals, `base + (step + row) * k` with k tokens asked for."""

    plain: float
    base: float
    step: float
    """The draft's time for a token. Each token asked for counts in full: where the draft stops early, a long block is
    cheap but also gives little."""
    row: float
    """The target's time for a token asked for: all outputs in the same pass wait for it."""


class RoundCosts:
    """Running estimates. A round has three parts: the draft's, the rows of the proposal, and a rest that all share.

    The rest is learned from rounds of both kinds, so that the time of a plain round is known while there is none.
    """

    def __init__(self) -> None:
        self.plain_count = 0
        """Plain rounds that were measured."""
        self.proposing_count = 0
        """Rounds with proposals that were measured."""
        self._rest = RunningMean(REST_MEMORY)
        self._step = RunningMean(DRAFT_MEMORY)
        """The draft's computation for each of its tokens, the start of a call included."""
        self._steps = RunningSlope(DRAFT_MEMORY, NEIGHBOURS)
        self._draft_rest = RunningMean(DRAFT_MEMORY)
        """The draft's part without its steps."""
        self._share = RunningMean(SHARE_MEMORY)
        self._ratio = RunningMean(RATIO_MEMORY)
        self._ratio.value, self._ratio.count = 1.0, RATIO_PRIOR
        """Ratio of the rest with proposals to the rest without: a draft on the same processor slows the target."""
        self._drafted_share = RunningMean(DRAFT_MEMORY)
        self._pass = RunningMean(ROW_MEMORY)
        self._rows = RunningSlope(ROW_MEMORY)

    @property
    def plain_time(self) -> float | None:
        """Estimated time of a round without proposals; None before rounds of both kinds were measured."""
        return self._rest.value if self.plain_count and self.proposing_count else None

    def add(self, outcome: RoundOutcome, load: int, most_rows: int) -> None:
        """Adds a round, while `load` outputs ran. Passes of more than `most_rows` tokens also fed a prompt: skipped."""
        if not outcome.is_usual or outcome.batch_token_count > most_rows:
            return
        self._rest.memory = REST_MEMORY * load
        self._rows.memory = self._pass.memory = ROW_MEMORY * load
        self._steps.memory = DRAFT_MEMORY * load
        self._rows.mean_memory = self._steps.mean_memory = NEIGHBOURS * load
        self._add_pass(outcome.batch_token_count, outcome.verify_compute)
        self._share.memory = SHARE_MEMORY * load
        self._share.add(outcome.asked > 0)
        rest = outcome.elapsed - outcome.draft_elapsed - self._row() * outcome.drafted_count
        rest = max(rest, LEAST_REST * outcome.elapsed)
        if outcome.asked:
            if load > 1 and self.plain_count and self._share.value <= MINORITY:
                self._ratio.add(min(rest / self._rest.value, MOST_RATIO))
            rest /= self._ratio.value
        add_usual(self._rest, rest)
        if not outcome.asked:
            self.plain_count += 1
            return
        self.proposing_count += 1
        self._add_draft(outcome.asked, outcome.drafted_count, outcome.draft_elapsed, outcome.draft_compute or 0.0)

    def _add_draft(self, asked: int, drafted: int, elapsed: float, compute: float) -> None:
        """Adds a call to the draft that gave `drafted` tokens."""
        self._drafted_share.add(drafted / asked)
        if drafted:
            self._steps.add(drafted, add_usual(self._step, compute / drafted) * drafted)
        add_usual(self._draft_rest, max(elapsed - self._step_time() * drafted, 0.0))

    def _add_pass(self, rows: int, time: float) -> None:
        """Adds a pass of the target. Its time is cut to MOST_LATE times the usual for this number of rows."""
        if self._rows.count:
            row = self._row()
            usual = max(self._rows.intercept(row) + row * rows, self._pass.value)
            time = min(time, MOST_LATE * usual)
        self._pass.add(time)
        self._rows.add(rows, time)

    def times(self) -> RoundTimes:
        """The estimates: all 0 before the first round; before the first with proposals, these seem to cost nothing."""
        plain = self._rest.value
        base = self._ratio.value * plain + self._draft_rest.value
        return RoundTimes(plain, base, self._step_time(), self._row() * self._drafted_share.value)

    def _step_time(self) -> float:
        """What one more token takes: less than the mean, since the first also pays for the start of the call."""
        return self._steps.slope(self._step.value, STEP_WEIGHT * self._steps.memory)

    def _row(self) -> float:
        return self._rows.slope(ROW_PRIOR * self._pass.value, ROW_WEIGHT)


def add_usual(mean: RunningMean, sample: float) -> float:
    """Adds a sample, cut to MOST_LATE times the mean; returns what was added."""
    if mean.value > 0.0:
        sample = min(sample, MOST_LATE * mean.value)
    mean.add(sample)
    return sample

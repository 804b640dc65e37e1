"""What rounds cost with one drafter under one load."""

from typing import NamedTuple

from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.running_mean import RunningMean, SteadyMean
from coordinator.adaptive.running_plane import RunningPlane, Slopes, common_slopes
from specpair.running_slope import RunningSlope

LEVEL_MEMORY = 10
"""Rounds of each output over which the level of the round times is followed."""
RATIO_MEMORY = 24
FRESH = 8
"""Rounds of each output after which a level is no longer compared with rounds of the other kind."""
MOST_SHARED_RATIO = 1.3
"""With other outputs: what a draft does to the target, all of them feel alike."""
SHARE_MEMORY = 8
MINORITY = 0.2
"""Share of its kind up to which a round among rounds of the other kind tells the ratio of the two."""
DRAFT_MEMORY = 48
SLOPE_MEMORY = 256
ROW_PRIOR = 0.02
"""Time of one more row in the target's pass, in passes, until it is measured."""
ROW_WEIGHT = 6.0
CROWDING_WEIGHT = 2.0
"""Weights of the priors for each output, as a pass is seen by all that are in it."""
CROWDING_PRIOR = 0.25
"""By how much a pass takes longer if an output waits for the draft meanwhile: they may share a processor."""
STEP_PRIOR_WEIGHT = 4.0


class RoundTimes(NamedTuple):
    """What a round would take now, in microseconds: `plain` without proposals, `base + per_token * k` with k."""

    plain: float
    base: float
    per_token: float
    others_base: float
    """By how much it delays each of the others, in the same terms: `others_base + others_per_token * k`."""
    others_per_token: float
    step: float
    """The part of `per_token` that the draft takes."""


class RoundCosts:
    """Running estimates in the company of the other outputs, as it is at present.

    The time of a round without its draft part, and without the rows of its proposal, follows the load and whatever else
    the machine does: it is a level with a short memory, fed by rounds of both kinds. What a proposal adds is remembered
    for longer: the draft part, the rows, and a ratio, because a draft on the same processor slows the target down. The
    ratio is only measured where rounds of both kinds are close together, so that a machine that gets slower while there
    is one kind alone does not change it.
    """

    def __init__(self) -> None:
        self._level = SteadyMean(LEVEL_MEMORY)
        self._plain = _Kind()
        self._proposing = _Kind()
        self._proposing_share = 0.0
        self._ratio = SteadyMean(RATIO_MEMORY)
        self._draft = SteadyMean(DRAFT_MEMORY)
        self._asked = RunningMean(DRAFT_MEMORY)
        self._drafted_share = RunningMean(DRAFT_MEMORY)
        self._step = RunningSlope(SLOPE_MEMORY)
        self._step_compute = SteadyMean(DRAFT_MEMORY)
        self._compute = SteadyMean(SLOPE_MEMORY)
        self._clock = 0
        self._load = 1
        self._slopes = Slopes(0.0, 0.0)

    @property
    def plain_count(self) -> int:
        """Plain rounds that were measured."""
        return self._plain.count

    @property
    def proposing_count(self) -> int:
        """Rounds with proposals that were measured."""
        return self._proposing.count

    @property
    def plain_time(self) -> float | None:
        """Microseconds of a round without proposals now; None before rounds of both kinds were measured."""
        return self._level.value if self._plain.count and self._proposing.count else None

    def add(self, outcome: RoundOutcome, load: int, most_rows: int) -> None:
        """A round while there were `load` outputs; passes of more than `most_rows` tokens fed a prompt as well."""
        if not outcome.is_usual or outcome.batch_token_count > most_rows:
            return
        self._clock += 1
        self._load = load
        kind, other = (self._proposing, self._plain) if outcome.asked else (self._plain, self._proposing)
        self._compute.add(outcome.verify_compute)
        kind.passes.memory = SLOPE_MEMORY * load
        kind.passes.add(outcome.batch_token_count, outcome.draft_company, outcome.verify_compute)
        self._slopes = self._pass_slopes()
        time = max(outcome.elapsed - outcome.draft_elapsed - self._slopes.first * outcome.drafted, 1.0)
        if self._are_comparable(kind, other, load):
            self._ratio.add(time / other.level.value if outcome.asked else other.level.value / time)
        kind.add_time(time, self._clock, load)
        share = 1.0 if outcome.asked else 0.0
        self._proposing_share += (share - self._proposing_share) / min(self._clock, SHARE_MEMORY * load)
        self._level.memory = LEVEL_MEMORY * load
        self._level.add(time / self._ratio_now() if outcome.asked else time)
        if outcome.asked:
            self._add_draft(outcome)

    def times(self) -> RoundTimes:
        """All 0 before a round was measured; without any with proposals, these seem to cost nothing."""
        plain = self._level.value
        if not self._proposing.count:
            return RoundTimes(plain, plain, 0.0, 0.0, 0.0, 0.0)
        row, crowding = self._slopes
        row *= self._drafted_share.value
        crowding /= max(self._compute.value, 1.0)
        step = self._step.slope(self._step_compute.value, STEP_PRIOR_WEIGHT)
        draft = max(self._draft.value - step * self._asked.value, 0.0)
        return RoundTimes(
            plain=plain,
            base=self._ratio_now() * plain + draft,
            per_token=step + row,
            others_base=crowding * draft,
            others_per_token=crowding * step + row,
            step=step,
        )

    def loosen(self) -> None:
        """For another load: what was measured is a beginning, which new samples soon outweigh."""
        for mean in (self._level, self._ratio, self._draft, self._step_compute):
            mean.loosen()

    def _are_comparable(self, kind: "_Kind", other: "_Kind", load: int) -> bool:
        """Whether a round of a kind has the company that the last ones of the other kind had.

        With several outputs, when all of them change over the company changes as well: only a round that is alone among
        rounds of the other kind can be compared with them.
        """
        if not other.count or self._clock - other.last > FRESH * load:
            return False
        share = self._proposing_share if kind is self._proposing else 1.0 - self._proposing_share
        return load == 1 or share <= MINORITY

    def _add_draft(self, outcome: RoundOutcome) -> None:
        self._draft.add(outcome.draft_elapsed)
        self._asked.add(outcome.asked)
        self._drafted_share.add(outcome.drafted / outcome.asked)
        self._step.add(outcome.asked, outcome.draft_elapsed)
        self._step_compute.add(outcome.draft_compute / max(outcome.drafted, 1))

    def _ratio_now(self) -> float:
        if not self._ratio.count:
            return 1.0
        return self._ratio.value if self._load == 1 else min(self._ratio.value, MOST_SHARED_RATIO)

    def _pass_slopes(self) -> Slopes:
        """By how much the target's pass grows with each row, and with each output that waits for the draft."""
        priors = Slopes(ROW_PRIOR * self._compute.value, CROWDING_PRIOR * self._compute.value)
        weights = Slopes(ROW_WEIGHT * self._load, CROWDING_WEIGHT * self._load)
        return common_slopes((self._plain.passes, self._proposing.passes), priors, weights)


class _Kind:
    """Rounds with proposals, or rounds without."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0
        """When the last one came, in rounds."""
        self.level = SteadyMean(LEVEL_MEMORY)
        self.passes = RunningPlane(SLOPE_MEMORY)

    def add_time(self, time: float, clock: int, load: int) -> None:
        if clock - self.last > FRESH * load:
            self.level.restart()
        self.level.memory = LEVEL_MEMORY * load
        self.level.add(time)
        self.last = clock
        self.count += 1

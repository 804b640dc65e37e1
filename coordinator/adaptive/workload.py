"""What outputs with the same drafter share, by level of load."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from coordinator.adaptive.draft_costs import DraftCosts
from coordinator.adaptive.load import Load
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.plan import Plan
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.round_times import RoundTimes
from coordinator.adaptive.slowdown import Slowdown
from coordinator.adaptive.verify_budget import VerifyBudget

ROWS_MARGIN = 16
"""A pass with more tokens than twice the outputs' rows and this margin also fed a prompt; the factor leaves room for
rows of outputs that have just ended."""
IN_STEP = 0.9
"""If rounds with proposals have at least this share of all rows in a pass, a plain round is known to have no longer
rest than they have: it has a call less, and may have been measured long ago."""

KIND_MEMORY = 2
"""Proposals of each output over which the share of those that were prepared is averaged."""
FEW, MOST = 0.4, 0.6
"""Shares of the proposals below which outputs are no longer expected to have them prepared, and above which they are.
Between them it stays as it is: where some have and some have not, the plan is not to change from round to round."""
FIRST_PROPOSING = 6
"""Rounds with a proposal, of each output, after which the present speed is that of their passes."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """Under one load: a call takes longer where many are made, and so does a step of the draft."""

    costs: RoundCosts = field(default_factory=RoundCosts)
    """Of rounds with a proposal."""
    draft: DraftCosts = field(default_factory=DraftCosts)


class Workload:
    """All outputs with one drafter."""

    def __init__(
        self,
        load: Load,
        passes: PassCosts,
        plain: Callable[[int], RoundCosts],
        first_step: Callable[[int], float],
    ):
        """`plain` are the costs of plain rounds at a level, shared with other drafters. `first_step` returns the
        seconds of a step of the draft with so many sequences, until one was measured."""
        self.load = load
        self.passes = passes
        self.budget = VerifyBudget(load)
        self._plain = plain
        self._first_step = first_step
        self._levels: dict[tuple[int, bool], Level] = defaultdict(Level)
        """By level of load, and by whether the draft works ahead: what it has prepared is not waited for."""
        self._slowdowns: dict[int, Slowdown] = defaultdict(Slowdown)
        """By level of load."""
        self._share_ahead = 0.0
        """Of the latest proposals ahead of which it might have worked, those where it did."""
        self._is_ahead = False
        """Whether it is expected to work ahead."""
        self._times: RoundTimes | None = None
        self._times_key = (0, False)
        self._fresh = 0
        """Rounds for which the times still hold."""
        self._proposing_rounds = 0
        """Rounds of all outputs since most of them propose."""

    @property
    def plain(self) -> RoundCosts:
        """Of rounds while no output proposes, at the present load."""
        return self._plain(self.load.level)

    @property
    def _key(self) -> tuple[int, bool]:
        """Of what most outputs do next."""
        return self.load.level, self._is_ahead

    @property
    def _level(self) -> Level:
        return self._levels[self._key]

    @property
    def is_plain(self) -> bool:
        """Whether no output proposes anything in its present round."""
        return self.load.row_count == self.load.output_count

    def plan(self) -> Plan:
        """What is worth its rows at present."""
        return self.budget.plan(self.times)

    def times(self) -> RoundTimes:
        """What rounds take at present; made anew once for each round of all outputs."""
        key = self._key
        if self._times is None or self._fresh <= 0 or key != self._times_key:
            self._times, self._times_key, self._fresh = self._made(), key, self.load.output_count
        return self._times

    def times_as_published(self) -> RoundTimes:
        """The same, if a step of the draft takes what it published and a call of it what one of the target takes."""
        times = self.times()
        return replace(times, draft_rest=times.plain_rest, step=self._first_step(self.load.output_count))

    def _made(self) -> RoundTimes:
        plain, level = self.plain, self._level
        draft, costs, slowdown = level.draft, level.costs, self._slowdowns[self.load.level].ratio
        is_slow = not self.is_plain
        # Rounds may be from long ago: their rest grows and shrinks with the machine's speed.
        plain_rest = plain.rest * self.passes.time(1) / (slowdown if is_slow else 1.0)
        rest = costs.rest * self.passes.time(1) * (1.0 if is_slow else slowdown) if costs.count else plain_rest
        self._assume(draft, plain_rest)
        return RoundTimes(
            plain_rest=min(plain_rest, rest) if costs.together > IN_STEP else plain_rest,
            plain_together=plain.together,
            rest=rest,
            together=costs.together if costs.count else plain.together,
            draft_rest=draft.rest,
            step=draft.step,
            passes=self.passes,
            cached_count=self.load.cached_count,
            slowdown=slowdown,
            is_slow=is_slow,
            plain_rows=float(max(self.load.output_count, 1)),
            row_share=1.0 if self._is_speed_of_proposals else self.passes.single_share,
            drafted_share=draft.drafted_share.value if draft.drafted_share.count else 1.0,
        )

    @property
    def _is_speed_of_proposals(self) -> bool:
        """Whether the present speed is that of passes while outputs propose."""
        return self._proposing_rounds >= FIRST_PROPOSING * self.load.output_count

    @property
    def _is_mixed(self) -> bool:
        """Whether only few outputs propose, for instance as probes, and others do not wait for them."""
        load = self.load
        return not self.is_plain and load.promised_count > 0 and 2 * load.proposing_count < load.output_count

    def _assume(self, draft: DraftCosts, plain_rest: float) -> None:
        """Before the first proposal under this load: a call as under the nearest load with any, or as the target's."""
        if draft.count:
            return
        known = [
            ((abs(level - self.load.level), is_ahead != self._is_ahead), each.draft.rest)
            for (level, is_ahead), each in self._levels.items()
            if each.draft.count
        ]
        nearest = min(known)[1] if known else plain_rest
        draft.assume(nearest, self._first_step(self.load.output_count))

    def add(self, outcome: RoundOutcome, *, is_probe: bool = False) -> None:
        """Learns what the round took. Passes that also fed a prompt are skipped: its rows cost less.

        A probe among several outputs waits for a pass of those that did not probe, so its rest is not that of a round
        in which all propose. It makes older ones count less, which may be from a slow hour.
        """
        self._fresh -= 1
        self._proposing_rounds = 0 if self.is_plain or self._is_mixed else self._proposing_rounds + 1
        self._note_kind(outcome, is_probe=is_probe)
        load = self.load
        level = self._levels[load.level, outcome.ahead is not None] if outcome.asked else self._level
        count, rows = load.output_count, load.row_count
        if is_probe and outcome.drafted_count and outcome.ahead is None:
            level.draft.doubt(outcome.draft_elapsed, outcome.depth)
        usual_rows = max(rows, count * (1 + outcome.drafted_count))  # a head's trees are not known before
        if not outcome.is_usual or outcome.batch_token_count > ROWS_MARGIN + 2 * usual_rows:
            return
        share = level.draft.drafted_share.value if level.draft.drafted_share.count else 1.0
        drafted = count + (rows - count) * share
        cached_count = load.cached_count * (min(outcome.batch_token_count / drafted, 1.0) if count > 1 else 1.0)
        speed = self.passes.add(outcome.batch_token_count, outcome.verify_compute, cached_count, output_count=count)
        unit = self.passes.time(1) or 1.0  # 0 where a target does not say what its passes take
        self._compare(self._slowdowns[load.level], speed)
        if outcome.asked:
            self._assume(level.draft, self.plain.rest * unit)
            level.draft.add(outcome, count, load.proposing_count)
            drafted = count + (rows - count) * level.draft.drafted_share.value
            if is_probe and count > 1:
                self._level.costs.forget()  # those by which it is decided whether to propose
            else:
                rows_in_step = max(drafted, outcome.batch_token_count)
                level.costs.add(outcome, count, rows_in_step, unit)
        elif rows == count:
            self.plain.add(outcome, count, count, unit)

    def _note_kind(self, outcome: RoundOutcome, *, is_probe: bool) -> None:
        """Notes whether the draft worked ahead of a proposal. Probes and the first proposals after rounds without one
        cannot tell: nothing was prepared for them."""
        is_first = outcome.works_ahead and outcome.ahead is None
        if outcome.asked and not is_probe and not is_first:
            is_ahead = float(outcome.ahead is not None)
            self._share_ahead += (is_ahead - self._share_ahead) / (KIND_MEMORY * max(self.load.proposing_count, 1))
            self._is_ahead = self._share_ahead > (FEW if self._is_ahead else MOST)

    def add_guess(self, asked: int, drafted: int) -> None:
        """Learns from a shadow proposal how many of the tokens that a drafter is asked for there are. As after a probe,
        older rounds with proposals count less."""
        level = self._level
        level.draft.drafted_share.add(drafted / asked)
        if self.load.output_count > 1:
            level.costs.forget()

    def _compare(self, slowdown: Slowdown, speed: float | None) -> None:
        """Compares passes while outputs propose and while none do; `speed` is None for a pass that is known already.
        Where only few propose a pass is of neither kind. Draft and target of a single output take turns."""
        if self.load.output_count == 1 or speed is None:
            return
        if self._is_mixed:
            slowdown.forget()
        else:
            slowdown.add(speed, self.load.output_count, is_proposing=not self.is_plain)

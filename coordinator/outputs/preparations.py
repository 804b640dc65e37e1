"""What the draft shall prepare while the target judges a round."""

from collections.abc import Mapping

from coordinator.adaptive import Decision, OutputLength
from coordinator.adaptive.ahead_trial import AheadTrial
from coordinator.adaptive.load import Load
from coordinator.adaptive.withholding import Withholding
from coordinator.outputs.round import Round
from coordinator.peers import Targets
from coordinator.peers.ahead_blocks import Preparation
from coordinator.requests.request import GenerationRequest
from specpair.options import Drafter, WorkAhead

OUTCOMES_PER_COUNT = 4
"""Outcomes to prepare for, at most, for each number of accepted tokens; the draft decides which and how many."""
LEAST_OUTCOMES, MOST_OUTCOMES = 8, 32
"""Of a round, at most: the fewest are those of one without a proposal."""
WORKING_AHEAD = (None, Drafter.MODEL)
"""Drafters that work ahead; None is a draft's default that is not known yet."""


class Preparations:
    """Decides for each round of one output whether the draft works ahead, and for how long a proposal."""

    def __init__(
        self,
        request: GenerationRequest,
        trials: Mapping[int, AheadTrial],
        load: Load,
        targets: Targets,
        withholding: Withholding | None,
    ):
        """`trials` are those of outputs like this one, by level of load; `withholding` is None if no distributions are
        sent in any case."""
        self._mode = mode_of(request)
        self._trials = trials
        self._load = load
        self._targets = targets
        self._withholding = withholding
        self._last = len(request.prompt_ids) + request.max_tokens - 1
        """The longest that the sequence may become before the target's last token."""
        self._passed_over: list[float] = []
        """Seconds of each round since the last one with a proposal."""

    def after(self, begun: Round, length: int, decision: Decision, drafter: Drafter | None) -> Preparation | None:
        """What to prepare during a round after `length` tokens, if the next one proposes by `decision`.

        None if the draft shall not work ahead, also where the output ends with this round or the next proposal is only
        a probe.
        """
        if not self.are_wanted(drafter) or decision.length == 0 or decision.is_probe or length + 2 > self._last:
            return None
        return Preparation(
            max_outcomes=min(max(OUTCOMES_PER_COUNT * (begun.asked_count + 1), LEAST_OUTCOMES), MOST_OUTCOMES),
            count=decision.length,
            min_confidence=decision.min_confidence,
            max_length=self._last,
            withholds=self._withholds,
        )

    def are_wanted(self, drafter: Drafter | None) -> bool:
        """Whether anything is to be prepared at present."""
        if self._mode is WorkAhead.OFF or drafter not in WORKING_AHEAD:
            return False
        return self._mode is WorkAhead.ON or self._trial.is_on

    def room(self, length: int) -> int:
        """The most tokens that a proposal after `length` tokens may have, whatever the draft's limits are by now."""
        return max(self._last - length, 0)

    def add(self, judged: Round, lengths: OutputLength) -> None:
        """Learns from a round, and compares it with those of the other kind. One that was passed over, for want of a
        proposal, counts with the next one that has a proposal.

        Only outputs for which measured times decide are compared. Those that always or never work ahead may differ in
        more than that, in the length of their proposals for one.
        """
        if self._withholding is not None and judged.drafter in WORKING_AHEAD and not judged.shares:
            self._withholding.add(judged)
        if self._mode is not WorkAhead.AUTO:
            return
        if judged.is_passed_over:
            self._passed_over.append(judged.elapsed)
        elif judged.asked:
            before = [] if judged.ahead is None else self._passed_over
            expected = len(before) + lengths.expected(judged.asked)
            self._trial.add(judged, expected, self._load.output_count, sum(before))
            self._passed_over = []

    @property
    def _withholds(self) -> bool:
        """Whether the draft keeps the distributions of what it prepares until they are asked for."""
        if self._withholding is None or not self._targets.info.takes_withheld_distributions:
            return False
        return self._withholding.pays

    @property
    def _trial(self) -> AheadTrial:
        return self._trials[self._load.level]


def mode_of(request: GenerationRequest) -> WorkAhead:
    """Whether the draft works ahead for this request.

    With forced text, which is not taken in rounds that work ahead, measured times do not decide: rounds end in the same
    places each time, so that the same seed gives the same text.
    """
    if request.num_tree_tokens or request.merges:
        return WorkAhead.OFF
    is_measured = request.work_ahead is WorkAhead.AUTO
    return WorkAhead.OFF if is_measured and request.takes_forced_text else request.work_ahead

"""Whether prepared proposals come without their distributions, which the draft is asked for if one is used."""

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.adaptive.running_mean import UsualMean
from coordinator.outputs.round import Round
from coordinator.peers import Targets

MEMORY = 16
"""Rounds over which times are averaged."""


class Withholding:
    """Decides for one output.

    They are hundreds of times as long as their tokens, and few are used. But to ask for them takes the way to the draft
    and back, which costs nothing only while the target's pass, begun with the tokens, takes longer.
    """

    def __init__(self, targets: Targets, *, ignores_proposals: bool):
        """With `ignores_proposals` no distributions are sent in any case."""
        self._targets = targets
        self._are_sent = not ignores_proposals
        self._way = UsualMean(MEMORY)
        """Seconds of a call to the draft without what it computes."""
        self._pass = UsualMean(MEMORY)
        """Seconds of the target's passes."""

    @property
    def pays(self) -> bool:
        is_possible = self._are_sent and self._targets.info.takes_withheld_distributions
        return is_possible and self._way.value <= self._pass.value

    def add(self, judged: Round) -> None:
        """Learns from a round with a proposal that the draft was asked for."""
        proposed = judged.proposed
        if proposed is None or not judged.is_usual:
            return
        self._pass.add_usual(judged.verify_compute)
        if proposed.asked_for is not None:
            self._way.add_usual(proposed.asked_for)
        elif proposed.ahead not in (AheadOutcome.HIT, AheadOutcome.LATE):
            self._way.add_usual(proposed.times.outside)

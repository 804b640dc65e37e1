"""How likely drafted tokens are accepted: by position, for one output, with its group as prior."""

from coordinator.adaptive.dispersion import Dispersion
from coordinator.adaptive.position_counts import CLASS_COUNT, PositionCounts, classes_tried

GROUP_MEMORY = 400.0
GROUP_PRIOR = (0.6, 0.65, 0.7)
"""Of a group of which nothing is known."""
GROUP_PRIOR_COUNT = 3.0
OUTPUT_MEMORY = 40.0
SEGMENT = 16
"""Trials after which an output is compared with its group."""
SHORTEST_SEGMENT = 4
USUAL_SURPRISE = 4.0
"""Squared deviations from the group's rate, in variances, that are put down to chance."""
LEAST_VARIANCE = 0.1
UNLIKELY = 0.003
SHORTEST_RUN = 3
"""A run of blocks all of whose first tokens were accepted, or rejected, that is a sign of another text."""

Rates = tuple[float, float, float]
"""The chance that a position is accepted if those before it are: of the first, the second, and each later one."""


class GroupAcceptance:
    """What outputs with the same drafter and rule and alike temperatures have in common."""

    def __init__(self) -> None:
        self.counts = PositionCounts(GROUP_MEMORY)
        self.counts.begin(GROUP_PRIOR, GROUP_PRIOR_COUNT)
        self.dispersion = Dispersion()


class AcceptanceEstimate:
    """The posterior mean of one output's rates. What it saw fades, so that it follows the text.

    A position counts as tried if it was asked for and all before it were accepted: a token that the draft did not
    propose is as good as a rejected one.
    """

    def __init__(self, group: GroupAcceptance):
        self._group = group
        self._counts = PositionCounts(OUTPUT_MEMORY)
        self._run_length = 0
        self._run_accepted = False
        """Blocks in a row whose first token was accepted, or rejected."""
        self._segment_tried = [0] * CLASS_COUNT
        self._segment_accepted = [0] * CLASS_COUNT

    def add(self, asked: int, accepted: int) -> None:
        """A block of which `asked` tokens were wanted and `accepted` came to be."""
        self._notice_change(accepted > 0)
        self._group.counts.add(asked, accepted)
        self._counts.add(asked, accepted)
        for i, is_accepted in classes_tried(asked, accepted):
            self._segment_tried[i] += 1
            self._segment_accepted[i] += is_accepted
            if self._segment_tried[i] == SEGMENT:
                self._compare(i)

    def rates(self) -> Rates:
        return self._rate(0), self._rate(1), self._rate(2)

    def end(self) -> None:
        """The output is finished: what it tells of the spread in its group is taken over."""
        for i in range(CLASS_COUNT):
            if self._segment_tried[i] >= SHORTEST_SEGMENT:
                self._compare(i)

    def _rate(self, i: int) -> float:
        return posterior_mean(
            self._group.counts.rate(i), self._group.dispersion.value, self._counts.accepted[i], self._counts.tried[i]
        )

    def _notice_change(self, is_accepted: bool) -> None:
        """Forgets what the output did before a run of equal outcomes that is too long to be chance."""
        is_longer = is_accepted == self._run_accepted
        self._run_length = self._run_length + 1 if is_longer else 1
        self._run_accepted = is_accepted
        rate = self._rate(0)
        chance = (rate if is_accepted else 1.0 - rate) ** self._run_length
        if self._run_length >= SHORTEST_RUN and chance < UNLIKELY:
            self._counts.restart(0, accepted=is_accepted, tried=self._run_length - 1)

    def _compare(self, i: int) -> None:
        self._group.dispersion.add(self._segment_accepted[i], self._segment_tried[i], self._group.counts.rate(i))
        self._segment_tried[i] = self._segment_accepted[i] = 0


def posterior_mean(rate: float, dispersion: float, accepted: float, tried: float) -> float:
    """Of a rate with a Beta distribution around `rate`, after so many trials.

    What is clearly not as expected is believed sooner: this output is not like the others of its group.
    """
    weight = 1.0 / dispersion - 1.0
    variance = max(tried * rate * (1.0 - rate), LEAST_VARIANCE) * (1.0 + tried * dispersion)
    surprise = (accepted - tried * rate) ** 2 / variance
    if surprise > USUAL_SURPRISE:
        weight *= USUAL_SURPRISE / surprise
    return (accepted + weight * rate) / (tried + weight)

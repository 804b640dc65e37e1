"""How likely proposed tokens are accepted: by position, for one output, with its group as prior."""

CLASS_COUNT = 3
"""The first position, the second, and all after it."""
GROUP_MEMORY = 400.0
"""Trials of a position that a group remembers."""
GROUP_PRIOR = (0.6, 0.65, 0.7)
"""Of a group of which nothing is known: high enough to try."""
GROUP_PRIOR_COUNT = 3.0
OUTPUT_MEMORY = 40.0
"""Trials that an output remembers, so that it follows its text."""
GROUP_WEIGHT = 12.0
"""Trials that the rate of the group counts for in an output: outputs differ, and each is soon believed."""
USUAL_SURPRISE = 4.0
"""Squared deviations from the group's rate, in variances, that are put down to chance: two standard deviations."""
LEAST_VARIANCE = 0.1
"""Of a rate near 0 or 1, so that a single trial proves nothing."""

Rates = tuple[float, float, float]
"""The chance that a position is accepted if those before it are: of the first, the second, and each later one."""


class GroupAcceptance:
    """What was tried and accepted lately in outputs with the same drafter and rule and alike temperatures."""

    def __init__(self) -> None:
        self._tried = [GROUP_PRIOR_COUNT] * CLASS_COUNT
        self._accepted = [GROUP_PRIOR_COUNT * rate for rate in GROUP_PRIOR]

    def rate(self, i: int) -> float:
        return self._accepted[i] / self._tried[i]

    def add(self, asked: int, accepted: int) -> None:
        count(self._tried, self._accepted, asked, accepted, GROUP_MEMORY)


class OutputAcceptance:
    """The posterior mean of one output's rates. What it saw fades, so that it follows the text.

    A position counts as tried if it was asked for and all before it were accepted: a token that the draft did not
    propose is as good as a rejected one.
    """

    def __init__(self, group: GroupAcceptance):
        self._group = group
        self._tried = [0.0] * CLASS_COUNT
        self._accepted = [0.0] * CLASS_COUNT

    def add(self, asked: int, accepted: int) -> None:
        """A block of which `asked` tokens were wanted and `accepted` came to be."""
        self._group.add(asked, accepted)
        count(self._tried, self._accepted, asked, accepted, OUTPUT_MEMORY)

    def rates(self) -> Rates:
        return self._rate(0), self._rate(1), self._rate(2)

    def _rate(self, i: int) -> float:
        return posterior_mean(self._group.rate(i), self._accepted[i], self._tried[i])


def posterior_mean(rate: float, accepted: float, tried: float) -> float:
    """Of an output's rate, after so many trials, in a group with such a rate.

    The less what it saw is like its group, the less the group counts: its text is another.
    """
    variance = max(tried * rate * (1.0 - rate), LEAST_VARIANCE)
    surprise = (accepted - tried * rate) ** 2 / variance
    weight = GROUP_WEIGHT * min(USUAL_SURPRISE / surprise, 1.0) if surprise else GROUP_WEIGHT
    return (accepted + weight * rate) / (tried + weight)


def count(tried: list[float], accepted: list[float], asked: int, accepted_count: int, memory: float) -> None:
    """Adds the positions of a block that were put to the test; those before them fade."""
    keep = 1.0 - 1.0 / memory
    for position in range(min(asked, accepted_count + 1)):
        i = min(position, CLASS_COUNT - 1)
        tried[i] = keep * tried[i] + 1.0
        accepted[i] = keep * accepted[i] + (position < accepted_count)

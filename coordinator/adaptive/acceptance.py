"""Acceptance rates by position for one output, with its group's rates as prior."""

CLASS_COUNT = 3
"""The first position, the second, and all later ones."""
GROUP_MEMORY = 400.0
"""Trials of a position that a group remembers."""
GROUP_PRIOR = (0.6, 0.65, 0.7)
"""Rates of a group before any trial: high enough to try proposing. A later position has at least the rate of the one
before it: where a first token is nearly always right, so is the next, and short proposals never show it."""
GROUP_PRIOR_COUNT = 3.0
OUTPUT_MEMORY = 40.0
"""Trials that an output remembers, so that it follows its text; rounds, where it proposes nothing."""
GROUP_WEIGHT = 12.0
"""The weight of the group's rate in an output, in trials: small, because outputs differ."""
USUAL_SURPRISE = 4.0
"""Squared deviation from the group's rate, in variances, that counts as chance: two standard deviations."""
UNTRIED_MEMORY = 16.0
"""Chances to try a position that were not taken over which its earlier trials lose their weight. Without it a position
whose first trials failed by chance is never asked for again, and so never found to be better."""
LEAST_VARIANCE = 0.1
"""A lower bound for rates near 0 or 1, so that a single trial proves nothing."""

Rates = tuple[float, float, float]
"""The chance that a position is accepted if all before it are: for the first, the second, and each later one."""


class GroupAcceptance:
    """Recent trials and acceptances of outputs with the same drafter, the same rule and similar temperatures."""

    def __init__(self) -> None:
        self._tried = [0.0] * CLASS_COUNT
        self._accepted = [0.0] * CLASS_COUNT

    @property
    def is_known(self) -> bool:
        """Whether any token was judged."""
        return self._tried[0] > 0.0

    def rate(self, i: int) -> float:
        prior = GROUP_PRIOR[i] if i == 0 else max(GROUP_PRIOR[i], self.rate(i - 1))
        return (self._accepted[i] + GROUP_PRIOR_COUNT * prior) / (self._tried[i] + GROUP_PRIOR_COUNT)

    def rates(self) -> Rates:
        return self.rate(0), self.rate(1), self.rate(2)

    def add(self, asked: int, accepted: int) -> None:
        count(self._tried, self._accepted, asked, accepted, GROUP_MEMORY)
        forget_untried(self._tried, self._accepted, asked, accepted)


class OutputAcceptance:
    """The posterior mean of one output's rates. Older trials lose weight, so that it follows the text.

    A position counts as tried if it was asked for and all before it were accepted: a token that the draft did not
    propose is as good as a rejected one.
    """

    def __init__(self, group: GroupAcceptance):
        self._group = group
        self._tried = [0.0] * CLASS_COUNT
        self._accepted = [0.0] * CLASS_COUNT

    def add(self, asked: int, accepted: int) -> None:
        """Adds a block for which `asked` tokens were requested and `accepted` were accepted."""
        self._group.add(asked, accepted)
        count(self._tried, self._accepted, asked, accepted, OUTPUT_MEMORY)
        forget_untried(self._tried, self._accepted, asked, accepted)

    def add_plain(self) -> None:
        """Adds a round without a proposal: what was seen of the first position becomes older. So an output that goes
        without comes back to its group's rate and is tried again if that pays; whether it does is left to probes."""
        keep = 1.0 - 1.0 / OUTPUT_MEMORY
        self._tried[0] *= keep
        self._accepted[0] *= keep

    def rates(self) -> Rates:
        return self._rate(0), self._rate(1), self._rate(2)

    def _rate(self, i: int) -> float:
        return posterior_mean(self._group.rate(i), self._accepted[i], self._tried[i])


def posterior_mean(rate: float, accepted: float, tried: float) -> float:
    """The posterior mean of an output's rate: `accepted` of `tried` trials, in a group with this `rate`.

    The more the output differs from its group, the less the group's rate counts.
    """
    variance = max(tried * rate * (1.0 - rate), LEAST_VARIANCE)
    surprise = (accepted - tried * rate) ** 2 / variance
    weight = GROUP_WEIGHT * min(USUAL_SURPRISE / surprise, 1.0) if surprise else GROUP_WEIGHT
    return (accepted + weight * rate) / (tried + weight)


def count(tried: list[float], accepted: list[float], asked: int, accepted_count: int, memory: float) -> None:
    """Adds the positions of a block that were judged; earlier trials lose weight."""
    keep = 1.0 - 1.0 / memory
    for position in range(min(asked, accepted_count + 1)):
        i = min(position, CLASS_COUNT - 1)
        tried[i] = keep * tried[i] + 1.0
        accepted[i] = keep * accepted[i] + (position < accepted_count)


def forget_untried(tried: list[float], accepted: list[float], asked: int, accepted_count: int) -> None:
    """After a block that was accepted as a whole, earlier trials of the next position lose weight, if none of its class
    was tried."""
    if accepted_count == asked < CLASS_COUNT:
        keep = 1.0 - 1.0 / UNTRIED_MEMORY
        tried[asked] *= keep
        accepted[asked] *= keep

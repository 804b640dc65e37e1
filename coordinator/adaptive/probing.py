"""When an output that goes without proposals tries one."""

from coordinator.adaptive.probe_budget import ProbeBudget

FIRST_GAP, LAST_GAP = 4, 32
"""Plain rounds between probes; each that fails doubles it."""
LIKELY = 0.35
MOST_FOR_OPENING = 0.5
MOST_EXCESS = 0.1
"""Tokens that an opening can cost, and a probe beyond what was expected: longer delays have other reasons."""


class Probing:
    """The probes of one output, paid from the budget of its group."""

    def __init__(self, budget: ProbeBudget):
        self._budget = budget
        self._gap = FIRST_GAP
        self._cost = 0.0
        self._last_two = (False, False)
        """Whether the last probes succeeded against expectation, the last one first."""

    def is_due(self, plain_streak: int, cost: float) -> bool:
        """Whether to try after so many plain rounds, at such a cost in tokens.

        After a success that nobody expected at once again, until two in a row fail: it takes a few to know that this
        output is another, or that its text has changed.
        """
        self._cost = cost
        if any(self._last_two) and self._budget.lends:
            return True
        return plain_streak >= self._gap and self._budget.affords(cost)

    def earn(self) -> None:
        """A plain round."""
        self._budget.earn()

    def pay(self, loss: float) -> None:
        """The draft was made to read the sequence, which cost so many tokens."""
        self._budget.spend(min(loss, MOST_FOR_OPENING))

    def end(self, loss: float, *, succeeded: bool, chance: float) -> None:
        """What a probe cost, and whether a token was accepted, which had such a chance."""
        self._budget.spend(min(loss, self._cost + MOST_EXCESS))
        self._budget.judge(succeeded=succeeded)
        self._last_two = (succeeded and chance < LIKELY, self._last_two[0])
        self._gap = FIRST_GAP if succeeded else min(2 * self._gap, LAST_GAP)

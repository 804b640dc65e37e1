"""The budget for probes, which find out whether proposals pay.

Several outputs probe in the same round: a pass waits for whoever asks the draft, so that one probe delays all outputs
as much as some together. Nobody waits for shadow proposals, which all outputs may make.
"""

from coordinator.adaptive.running_mean import MOST_LATE

MOST_SHARE, LEAST_SHARE = 0.008, 0.002
"""Tokens that probes may cost per round without proposals. The share falls while probes fail, so that a draft that is
never right costs almost nothing."""
SHARE_FACTOR = 0.8
"""What remains of the share after a failed probe."""
FIRST_CREDIT = 0.5
"""Tokens that each output brings as long as its group knows nothing: sixteen can pay for a first probe, and need not
wait for it through rounds in which proposals might have paid."""
MOST_FIRST_CREDIT = 8.0
"""All that such outputs bring together: many short ones whose proposals are never judged do not add up."""
MOST_CREDIT = 3.0
"""Tokens of each output: also the largest debt."""
MOST_CAUTION = 64.0
"""How many times its cost is saved at most for a probe that doubts what the draft was measured to take."""
LEAST_COST = 0.02
"""Least cost of a probe, in tokens: it limits the number of probes even if they seem to cost nothing."""
RECENT = 4
"""Rounds in which a probe is made and judged."""
SHADOW_ROUNDS = 8
"""Rounds from one that makes shadow proposals to the next: what they say is known only after some tokens."""
MOST_JOINING = 4
"""Outputs that probe together, and so many sequences at most that the draft opens only for probes."""


class ProbeBudget:
    """The budget of a group of outputs: rounds without proposals fill it, probes are paid from it. In tokens."""

    def __init__(self) -> None:
        self.holder_count = 0
        """Outputs whose sequence the draft holds."""
        self.out_count = 0
        """Probes whose outcome is not known yet."""
        self.due_count = 0
        """Those of them that are made in the next round."""
        self._credit = 0.0
        self._share = MOST_SHARE
        self._round = -1
        """The latest in which outputs probe."""
        self.begun_count = 1
        """Outputs that might probe together then."""
        self._joining = 0
        """Those that may still do so."""
        self._doubted = 0.0
        """Seconds that the draft was measured to take, if they probe because that is doubted."""
        self._caution = 1.0
        """Doubles when it was right."""
        self._goal = 0.0
        """Tokens that are saved for such a probe."""

    def endow(self) -> None:
        """Adds what an output brings whose group knows nothing yet."""
        self._credit = max(min(self._credit + FIRST_CREDIT, MOST_FIRST_CREDIT), self._credit)

    def earn(self, count: int = 1) -> None:
        """Adds credit for a round without proposals of one of `count` outputs."""
        self._credit = min(self._credit + self._share, max(MOST_CREDIT * count, self._goal))

    def affords(self, cost: float) -> bool:
        return self._credit >= max(cost, LEAST_COST)

    def is_beyond(self, cost: float, count: int) -> bool:
        """Whether `count` outputs never have so much credit, unless they save for it."""
        return cost > MOST_CREDIT * count

    def has_saved(self, cost: float) -> bool:
        """Whether a probe that doubts what the draft was measured to take can be paid from what was saved; from now on
        rounds save for it. So it is never on credit, however dear it is, and rarer each time that the doubt was wrong.
        """
        self._goal = self._caution * max(cost, LEAST_COST)
        return self._credit >= self._goal

    def spend(self, cost: float, count: int = 1) -> None:
        """Pays for a probe of one of `count` outputs. A cost above the credit leaves a debt."""
        self._credit = max(self._credit - max(cost, LEAST_COST), -MOST_CREDIT * count)

    def judge(self, *, succeeded: bool) -> None:
        """Adjusts the share: `succeeded` says whether the probe's token was accepted, or a shadow proposal would have
        been worth its time."""
        self._share = MOST_SHARE if succeeded else max(self._share * SHARE_FACTOR, LEAST_SHARE)

    def has_some_out(self, number: int) -> bool:
        """Whether there are such probes. Those that are not back after few rounds wait for a client that does not
        read."""
        return self.out_count > 0 and number - self._round <= RECENT

    def has_begun(self, number: int) -> bool:
        """Whether outputs may probe in this round."""
        return self._joining > 0 and self._round == number

    def has_begun_lately(self, number: int) -> bool:
        """Whether too few rounds have gone by since outputs last probed."""
        return self._round >= 0 and number - self._round < SHADOW_ROUNDS

    def begin(self, number: int, joining: int = MOST_JOINING, doubted: float = 0.0) -> None:
        """Lets `joining` outputs probe in this round. `doubted` are the seconds that the draft was measured to take, if
        that is doubted."""
        self._round, self._joining, self._doubted = number, joining, doubted
        self.begun_count = joining
        if not doubted:
            self._goal = 0.0

    def settle(self, seconds: float) -> None:
        """The draft took so long for a proposal, which has been paid for."""
        if self._doubted:
            was_right = MOST_LATE * seconds >= self._doubted
            self._caution = min(2.0 * self._caution, MOST_CAUTION) if was_right else 1.0
            self._doubted = self._goal = 0.0

    def join(self, *, is_holder: bool) -> bool:
        """Whether this output probes: rather one whose sequence the draft holds."""
        if not is_holder and self.holder_count >= MOST_JOINING:
            return False
        self._joining -= 1
        return True

"""The number of tokens that each output with one drafter proposes.

The chance that a token counts is the product of the acceptance rates up to it, known before it is drawn. Two numbers
say which are proposed: the least chance of a token, and the longest proposal. The draft draws the proposals of all
outputs in the same steps, so a step is as dear for one output as for all: where rows cost little, short proposals
beside a long one save nothing.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from coordinator.adaptive.round_times import RoundTimes
from coordinator.adaptive.survivals import LEAST

PATIENCE = 4
"""Tokens of each output that may make it worse before the search for the best number of tokens ends: a pass may cost
more by steps."""
REFINEMENTS = 2
"""How often the price of a row is found anew for the best plan so far."""


class Plan(NamedTuple):
    """Which tokens are worth their rows at present."""

    least: float
    """Tokens that survive with at least this chance are proposed."""
    longest: int
    """The longest proposal of any output; 0 if none pays."""
    price: float
    """Tokens of all outputs together that one more token of one output costs."""
    gain: float
    """Expected tokens per second of all outputs, divided by those without proposals."""


NOTHING = Plan(2.0, 0, 1.0, 1.0)


def best_plan(
    survivals: Sequence[Sequence[float]], others_tokens: float, others_rows: float, times: RoundTimes
) -> Plan:
    """The plan for outputs with these chances beside others, which commit `others_tokens` tokens in a round of
    `others_rows` rows."""
    search = PlanSearch(survivals, others_tokens, others_rows, times)
    search.by_chance()
    for _ in range(REFINEMENTS):
        if not search.by_length():
            break
    return search.best


class PlanSearch:
    """Keeps the plan with the most tokens per second of those that it has seen."""

    def __init__(
        self, survivals: Sequence[Sequence[float]], others_tokens: float, others_rows: float, times: RoundTimes
    ) -> None:
        self._survivals, self._times = survivals, times
        self._count = len(survivals)
        self._tokens, self._rows = others_tokens + self._count, others_rows + self._count
        self._plain_rate = self._tokens / times.plain(self._rows)
        self._rate, self._least, self._longest, self._taken = self._plain_rate, 2.0, 0, 0
        """The best plan so far: its tokens per second, its two numbers, and its tokens of all outputs."""

    @property
    def best(self) -> Plan:
        if not self._taken:
            return NOTHING
        price = self._row_price + self._rate * self._times.step / self._count
        return Plan(self._least, self._longest, min(price, 1.0), self._rate / self._plain_rate)

    @property
    def _row_price(self) -> float:
        """Tokens of all outputs together that one more row costs."""
        return self._rate * self._times.row(self._rows + self._taken * self._times.drafted_share)

    def by_chance(self) -> None:
        """Takes the most likely tokens of all outputs, as many as are best."""
        tokens = [(chance, k) for own in self._survivals for k, chance in enumerate(own)]
        tokens.sort(key=itemgetter(0), reverse=True)
        proposing, gained, longest = 0, 0.0, 0
        for taken, (chance, k) in enumerate(tokens, 1):
            proposing += k == 0
            gained += chance
            longest = max(longest, k + 1)
            if taken < len(tokens) and tokens[taken][0] == chance:
                continue  # equally likely tokens are all taken or none
            self._offer(chance, longest, taken, proposing, gained)
            if self._taken and taken > self._taken + PATIENCE * self._count:
                break

    def by_length(self) -> bool:
        """Tries each length with all tokens up to it that are worth their rows alone; whether that is better."""
        before, least = self._rate, max(self._row_price, LEAST)
        gains = [list(accumulate(chance for chance in own if chance >= least)) for own in self._survivals]
        gains = [own for own in gains if own]
        for longest in range(1, max(map(len, gains), default=0) + 1):
            taken = sum(min(len(own), longest) for own in gains)
            gained = sum(own[min(len(own), longest) - 1] for own in gains)
            self._offer(least, longest, taken, len(gains), gained)
        return self._rate > before

    def _offer(self, least: float, longest: int, taken: int, proposing: int, gained: float) -> None:
        """Keeps a plan if it is better: `proposing` outputs propose `taken` tokens together, of which `gained` are
        expected to be accepted."""
        times = self._times
        target, draft = times.target(self._rows + taken * times.drafted_share), times.draft(longest)
        rate = (self._tokens - proposing) / (times.plain_rest + target + times.waiting * draft)
        rate += (proposing + gained) / (times.rest + target + draft)
        if rate > self._rate:
            self._rate, self._least, self._longest, self._taken = rate, least, longest, taken

"""Shares the rows of a pass between all outputs with one drafter.

Each further token of each output competes for the pass: the chance that it counts is the product of the acceptance
rates up to it, known before it is drawn. The most likely are taken, as many as give the most tokens per second.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.pass_costs import PassCosts

ON_MARGIN = 1.05
"""By what factor proposing has to be better before it begins; less is noise."""
TOGETHER_MARGIN, KEPT_MARGIN = 0.1, 0.05
"""How much more it has to gain to begin, and to go on, where many outputs share passes: one half of it for two, nearly
all for sixteen. Those that are accepted less end later, in passes that are less full, and rounds with and without
proposals wait for each other. What proposals really gain is found by trials while they go on, and one that stopped is
not tried again: so little is asked to go on."""

PATIENCE = 4
"""Tokens of each output that may make it worse before the search for the best number of tokens ends: a pass may cost
more by steps."""


class Member(Protocol):
    """An output that proposes as many tokens as pay."""

    @property
    def survivals(self) -> Sequence[float]:
        """For each token that it may propose, the chance that it is accepted with all before it. Falls."""
        ...

    @property
    def contribution(self) -> Contribution: ...


@dataclass(frozen=True, kw_only=True)
class RoundTimes:
    """What a round takes at the present load, in seconds, beside its pass."""

    plain_rest: float
    plain_together: float
    """Share of all rows that are in one pass while no output proposes."""
    rest: float
    """With proposals, as the next."""
    together: float
    draft_rest: float
    step: float
    passes: PassCosts
    """At the machine's present speed."""
    cached_count: float = 0.0
    """Tokens that all outputs have in the target's cache."""
    slowdown: float = 1.0
    """Time of a pass while outputs propose, over that of one with as many rows while none do."""
    is_slow: bool = False
    """Whether outputs propose now, so that the present speed is the slower one."""
    plain_rows: float = 0.0
    """Rows of all outputs while none proposes."""
    row_share: float = 1.0
    """Share of its time at the present speed that each row beyond these takes. Where the work on many answers slows a
    pass, it does so by as much for few rows as for many."""
    drafted_share: float = 1.0
    """Tokens that the draft proposes, of those that it is asked for."""

    def plain(self, rows: float) -> float:
        """Seconds of a round in which no output proposes."""
        return self.plain_rest + self._quick * self._passes(rows, self.plain_together)

    def target(self, rows: float) -> float:
        """Seconds in which the target works on `rows` rows of all outputs, some of them proposed."""
        seconds = self._passes(rows, self.together)
        if self.row_share < 1.0 and rows > self.plain_rows:
            plain = self._passes(self.plain_rows, self.together)
            seconds = plain + self.row_share * (seconds - plain)
        return self._slow * seconds

    def row(self, rows: float) -> float:
        """Seconds of one more row."""
        return self._slow * self.row_share * self.passes.row(self.together * rows) * self.drafted_share

    def draft(self, length: int) -> float:
        return self.draft_rest + self.step * length

    def proposing(self, others_rows: float, longest: int, asked: int) -> float:
        """Seconds of a round with proposals of at most `longest` tokens, `asked` together, beside other rows."""
        return self.rest + self.draft(longest) + self.target(others_rows + asked * self.drafted_share)

    def of_all(self, output_count: int, length: int) -> float:
        """Seconds of a round in which so many outputs ask for `length` tokens each."""
        return self.proposing(output_count, length, output_count * length)

    def _passes(self, rows: float, share: float) -> float:
        """Seconds of the passes for so many rows of all outputs, of which each has this share."""
        return self.passes.time(share * rows, share * self.cached_count) / share

    @property
    def _quick(self) -> float:
        return 1.0 / self.slowdown if self.is_slow else 1.0

    @property
    def _slow(self) -> float:
        return 1.0 if self.is_slow else self.slowdown

    @property
    def waiting(self) -> float:
        """Share of the draft's time that outputs without a proposal wait for those with one: all if they keep step."""
        return max(2.0 * self.together - 1.0, 0.0)


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
    count = len(survivals)
    tokens = sorted(((chance, k, i) for i, own in enumerate(survivals) for k, chance in enumerate(own)), reverse=True)
    rows = others_rows + count
    plain_rate = (others_tokens + count) / times.plain(rows)
    best_rate, best_taken = plain_rate, 0
    plain_tokens, proposing_tokens, longest, best_longest = others_tokens + count, 0.0, 0, 0
    for taken, (chance, k, _) in enumerate(tokens, 1):
        if k == 0:
            plain_tokens -= 1.0
            proposing_tokens += 1.0
        proposing_tokens += chance
        longest = max(longest, k + 1)
        if taken < len(tokens) and tokens[taken][0] == chance:
            continue  # equally likely tokens are all taken or none
        target, draft = times.target(rows + taken * times.drafted_share), times.draft(longest)
        rate = plain_tokens / (times.plain_rest + target + times.waiting * draft)
        rate += proposing_tokens / (times.rest + target + draft)
        if rate > best_rate:
            best_rate, best_taken, best_longest = rate, taken, longest
        elif best_taken and taken > best_taken + PATIENCE * count:
            break
    if not best_taken:
        return NOTHING
    least = tokens[best_taken - 1][0]
    price = best_rate * (times.row(rows + best_taken * times.drafted_share) + times.step / count)
    return Plan(least, best_longest, min(price, 1.0), best_rate / plain_rate)


class VerifyBudget:
    """The plan of all outputs with one drafter, made anew for every other round of each."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._members: dict[Member, None] = {}
        self._plan = NOTHING
        self._left = 0
        """Decisions by the present plan that may still be made."""

    def enter(self, member: Member) -> None:
        self._members[member] = None
        self._left = 0

    def leave(self, member: Member) -> None:
        self._members.pop(member, None)
        self._left = 0

    def plan(self, times: Callable[[], RoundTimes]) -> Plan:
        """The plan for a decision."""
        if self._left <= 0:
            self._plan = self._made(times())
            self._left = len(self._members) // 2
        self._left -= 1
        return self._plan

    def _made(self, times: RoundTimes) -> Plan:
        members, load = self._members, self._load
        others_tokens = load.tokens - sum(member.contribution.tokens for member in members)
        others_rows = load.row_count - sum(member.contribution.row_count for member in members)
        plan = best_plan([member.survivals for member in members], others_tokens, others_rows, times)
        shared = 1.0 - 1.0 / len(members)
        least = 1.0 + KEPT_MARGIN * shared if self._plan.longest else ON_MARGIN + TOGETHER_MARGIN * shared
        return NOTHING if plan.gain < least else plan

"""What a round takes, by the rows of all outputs."""

from dataclasses import dataclass

from coordinator.adaptive.pass_costs import PassCosts


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

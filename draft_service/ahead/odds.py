"""How likely the outcomes of a step are, learnt from those that came. Pure.

Any estimate is exact: which outcomes are prepared decides what is fast, never what is written.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from draft_service.ahead.outcomes import Guess, Outcome
from specpair.options import Rule, SamplingOptions
from specpair.speculation.outlook import WIDTH, Outlook

MEMORY = 256.0
"""Outcomes over which a rate is averaged."""
ACCEPTANCE_PRIOR = 0.7
CORRECTION_PRIOR = (0.35, 0.12, 0.07, 0.05, 0.03, 0.02, 0.02, 0.01)
BONUS_PRIOR = (0.55, 0.14, 0.07, 0.04, 0.03, 0.02, 0.02, 0.01)
"""Chance of each rank before anything was seen. They fall about as fast as the published r = 1 says: F guesses miss a
share of F^-r (Kumar et al. 2026, Theorem 12)."""
PRIOR_WEIGHT = 8.0
"""Outcomes that a prior counts for."""
_EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)
"""Shares at which one bin ends and the next begins."""
_TEMPERATURES = (0.0, 0.6, 0.9)
"""Ends of the ranges of temperature that learn together, but for the last."""


class Rate:
    """How often something happens, lately."""

    __slots__ = ("_hits", "_trials")

    def __init__(self) -> None:
        self._hits = 0.0
        self._trials = 0.0

    def add(self, hit: bool) -> None:
        keep = 1.0 if self._trials < MEMORY else 1.0 - 1.0 / MEMORY
        self._hits = keep * self._hits + hit
        self._trials = keep * self._trials + 1.0

    def among(self, prior: float) -> float:
        """The rate, drawn towards a prior as long as little was seen."""
        return (self._hits + PRIOR_WEIGHT * prior) / (self._trials + PRIOR_WEIGHT)


class Row(NamedTuple):
    """One row of a proposal: what was drawn from it, and what else it had."""

    drawn: int | None
    """None for the row after the whole block."""
    outlook: Outlook
    share: float | None = None
    """The probability that the drawn token had; None if only its place in the outlook is known."""

    @property
    def guesses(self) -> tuple[list[int], list[float]]:
        """The tokens that may come instead, best first, and their shares among themselves. The drawn one is never
        among them: if it was rejected, the target's own token is another."""
        tokens, shares = list(self.outlook.token_ids), list(self.outlook.shares)
        if self.drawn in tokens:
            place = tokens.index(self.drawn)
            del tokens[place], shares[place]
        total = sum(shares) or 1.0
        return tokens, [share / total for share in shares]

    @property
    def confidence(self) -> float:
        """The share of the drawn token; 0 if it is not known and not among the best."""
        if self.share is not None:
            return self.share
        tokens, shares = self.outlook
        return shares[tokens.index(self.drawn)] if self.drawn in tokens else 0.0


class Odds:
    """The chances of outcomes for sequences of one rule and range of temperature."""

    def __init__(self) -> None:
        self._accepted = Rate()
        self._accepted_at = _rates()
        """By the drawn token's share: at temperature 0 it says nearly everything."""
        self._ranks = {is_bonus: [Rate() for _ in range(WIDTH)] for is_bonus in (False, True)}
        """By whether it is the bonus token."""
        self._ranks_at = {is_bonus: [_rates() for _ in range(WIDTH)] for is_bonus in (False, True)}
        """By rank and share too."""

    def acceptance(self, row: Row) -> float:
        """The chance that the drawn token of a row is accepted, if those before it are."""
        return self._accepted_at[_bin(row.confidence)].among(self._accepted.among(ACCEPTANCE_PRIOR))

    def counts(self, rows: Sequence[Row]) -> list[float]:
        """[K + 1]: the chance of each accepted count, for the rows [K] of the block."""
        acceptances = [self.acceptance(row) for row in rows]
        reached = list(accumulate(acceptances, lambda all_before, one: all_before * one, initial=1.0))
        return [*(r * (1.0 - a) for r, a in zip(reached, acceptances, strict=False)), reached[-1]]

    def guesses(self, accepted_count: int, row: Row, chance: float, least: float = 0.0) -> list[Guess]:
        """The guesses at a row that is reached and left with this chance, the best by its outlook first; of those that
        are less likely than `least` only the likeliest, if there is no other."""
        tokens, shares = row.guesses
        most = max(int(chance / least), 1) if least else WIDTH  # later ranks are hardly the likelier ones
        tokens = tokens[:most]
        chances = [chance * own for own in self._chances(row.drawn is None, shares[:most])]
        least = min(least, max(chances, default=0.0))
        pairs = zip(tokens, chances, strict=True)
        return [Guess(Outcome(accepted_count, token), own) for token, own in pairs if own >= least]

    def bonus_chances(self, chance: float) -> list[float]:
        """The chance of each guess of the bonus token, before its row is known."""
        return [chance * self._ranks[True][rank].among(BONUS_PRIOR[rank]) for rank in range(WIDTH)]

    def learn(self, rows: Sequence[Row], bonus: Row | None, outcome: Outcome) -> None:
        """Learns from an outcome; `bonus` is the row after the whole block, if it is known."""
        for index, row in enumerate(rows[: outcome.accepted_count + 1]):
            accepted = index < outcome.accepted_count
            self._accepted.add(accepted)
            self._accepted_at[_bin(row.confidence)].add(accepted)
        is_bonus = outcome.accepted_count == len(rows)
        row = bonus if is_bonus else rows[outcome.accepted_count]
        if row is None:
            return
        tokens, shares = row.guesses
        for rank, (token, share) in enumerate(zip(tokens, shares, strict=True)):
            hit = token == outcome.next_token_id
            self._ranks[is_bonus][rank].add(hit)
            self._ranks_at[is_bonus][rank][_bin(share)].add(hit)
        for rate in self._ranks[is_bonus][len(tokens) :]:
            rate.add(False)

    def _chances(self, is_bonus: bool, shares: Sequence[float]) -> list[float]:
        """The chance of each rank, by the share that it has."""
        priors = BONUS_PRIOR if is_bonus else CORRECTION_PRIOR
        known = zip(shares, self._ranks[is_bonus], self._ranks_at[is_bonus], priors, strict=False)
        return [finer[_bin(share)].among(rate.among(prior)) for share, rate, finer, prior in known]


class AllOdds:
    """The odds of all groups of sequences: outcomes are alike where rule and temperature are."""

    def __init__(self) -> None:
        self._groups: defaultdict[tuple[Rule, int], Odds] = defaultdict(Odds)

    def of(self, rule: Rule, sampling: SamplingOptions) -> Odds:
        """Of the group of a sequence. At temperature 0 all rules are one."""
        group = sum(sampling.temperature > end for end in _TEMPERATURES)
        return self._groups[rule if group else Rule.TOKEN, group]


def _rates() -> list[Rate]:
    """One for each bin of shares."""
    return [Rate() for _ in range(len(_EDGES) + 1)]


def _bin(share: float) -> int:
    return bisect_right(_EDGES, share)

"""Whether working ahead pays: trials compare rounds with it to rounds without."""

from collections import deque

from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.plain_trial import trimmed_mean

FIRST_ROUNDS = 4
"""Rounds of each output without it, to see how far away the draft is."""
FAR = 0.1
"""Share of a round that is the way to the draft and back, above which the first trial comes at once: the way is certain
to be saved, while what the draft computes meanwhile may cost the target time on a shared device."""
LEAST_WAIT = 0.04
"""Share of a round that is waiting for the draft, below which there is nothing to gain and no trial."""
ROUNDS = 10
"""Rounds of each output in a trial."""
SETTLING = 2
"""The first of them, left out: the draft begins with the first, and its proposal is used in the second."""
SHOWN = 12
"""Compared rounds of all outputs after which a trial ends early if the difference to the usual way is clear."""
FIRST_INTERVAL, LAST_INTERVAL = 32, 2048
"""Rounds of each output between trials."""
CLOSE, CLEAR = 0.97, 0.9
"""The slower way's speed as a share of the faster one's: if it is close the next trial comes soon, if the difference is
clear the interval grows fast, because trials cost more then and teach less."""
MARGIN = 1.03
"""By what factor the other way has to be faster to be taken; less is noise."""
MEMORY = 48
"""Rounds of the usual way that a trial is compared with."""


class AheadTrial:
    """One group of outputs at one level of load. All of them work ahead, or none does."""

    def __init__(self) -> None:
        self.is_on = False
        """Whether the draft is to work ahead in the next round."""
        self._is_known = False
        """Whether the first rounds have shown how far away the draft is."""
        self.pays = False
        """Whether it was found to be faster; outside trials, it is on then."""
        self._interval = FIRST_INTERVAL
        self._count = 0
        """Rounds since the last trial, or in the present one."""
        self._is_trying = False
        self._times: dict[bool, deque[float]] = {is_ahead: deque(maxlen=MEMORY) for is_ahead in (False, True)}
        """Seconds for an expected token, by whether the draft worked ahead."""
        self._waits: deque[float] = deque(maxlen=MEMORY)
        """Share of a round in which it waited for the draft, without working ahead."""
        self._ways: deque[float] = deque(maxlen=MEMORY)
        """Share of a round that was the way to the draft and back, without working ahead."""

    def add(self, outcome: RoundOutcome, tokens: float, load: int, before: float = 0.0) -> None:
        """Adds a round with a proposal, expected to give `tokens` tokens, while `load` outputs ran. Rounds without one
        that took `before` seconds count as part of it, with their tokens."""
        if not outcome.asked or not outcome.is_usual or outcome.elapsed <= 0.0:
            return
        self._count += 1
        self._note(outcome, outcome.elapsed + before, tokens, load)
        if not self._is_known:
            if len(self._waits) >= min(FIRST_ROUNDS * load, MEMORY):
                self._begin()
        elif self._is_trying and (self._count >= ROUNDS * load or self._is_clearly_worse):
            self._judge()
        elif not self._is_trying and self._count >= self._interval * load and self._may_gain:
            self._try()

    @property
    def _may_gain(self) -> bool:
        return self.pays or trimmed_mean(self._waits) >= LEAST_WAIT

    @property
    def _is_clearly_worse(self) -> bool:
        """Whether the way that is tried need not be tried any longer."""
        usual, other = self._times[self.pays], self._times[not self.pays]
        if len(other) < SHOWN or not usual:
            return False
        return trimmed_mean(usual) < CLEAR * trimmed_mean(other)

    def _note(self, outcome: RoundOutcome, seconds: float, tokens: float, load: int) -> None:
        is_ahead = outcome.ahead is not None
        if is_ahead != outcome.works_ahead or (self._is_trying and self._count <= SETTLING * load):
            return  # half of one kind
        self._times[is_ahead].append(seconds / tokens)
        if not is_ahead:
            way = max(outcome.draft_elapsed - (outcome.draft_compute or 0.0), 0.0)
            self._waits.append(outcome.draft_elapsed / outcome.elapsed)
            self._ways.append(way / outcome.elapsed)

    def _begin(self) -> None:
        self._is_known, self._count = True, 0
        if trimmed_mean(self._ways) >= FAR:
            self._try()

    def _try(self) -> None:
        self._is_trying, self.is_on, self._count = True, not self.pays, 0
        self._times[self.is_on].clear()

    def _judge(self) -> None:
        usual, other = self._times[self.pays], self._times[not self.pays]
        self._is_trying, self._count = False, 0
        if usual and other:
            gain = trimmed_mean(usual) / trimmed_mean(other)
            if gain > MARGIN:
                self.pays, self._interval = not self.pays, FIRST_INTERVAL
            else:
                factor = 1 if gain > 1.0 else 2 if gain > CLOSE else 4 if gain > CLEAR else 8
                self._interval = min(factor * self._interval, LAST_INTERVAL)
        self.is_on = self.pays

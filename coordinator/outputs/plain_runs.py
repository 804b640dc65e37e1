"""Rounds without a proposal of one output: how many come in a call, and what the target is told of the next call."""

from coordinator.adaptive import Decision, OutputLength
from coordinator.outputs.round import Round
from coordinator.peers import NO_ORDER, OwnOrder, run_within


class PlainRuns:
    """Each call may be for a run of rounds (docs/decisions/engine.md)."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long a run may take; 0 for single rounds."""
        self._seconds = seconds
        self._promised: OwnOrder | None = None
        """What the target was told of the next call, if that has no proposal."""

    def promise(self, begun: Round, left: int) -> None:
        """Tells the target that the call after `begun` has no proposal, with `left` tokens of the output left."""
        self._promised = begun.following_order = run_within(self._seconds, left)

    def plan(self, begun: Round, decision: Decision, newest: Decision, left: int, length: OutputLength) -> bool:
        """Asks for a run if nothing is proposed. Returns whether the next call has no proposal in any case, which the
        target is then told."""
        is_short = decision.is_probe or newest.opens_draft  # proposals may follow soon
        if (plain_rounds := length.plain_rounds) is not None:
            left = min(left, 2 * plain_rounds)  # the next run may be none
        begun.is_opening = newest.opens_draft and self._seconds > 0.0
        promised, self._promised = self._promised, None
        is_single = is_short or length.is_settling
        if not decision.length and (promised is not None or not newest.length):
            begun.order = promised or (NO_ORDER if is_single else run_within(self._seconds, left))
        if decision.is_probe or not (decision.length or newest.length):
            left -= begun.order.run_length
            self._promised = begun.following_order = NO_ORDER if is_short else run_within(self._seconds, left)
        return self._promised is not None

    def give_up(self) -> None:
        """All rounds that follow are asked for one by one."""
        self._seconds, self._promised = 0.0, None

"""What the target itself is asked for with a verdict: a proposal, and further rounds."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class OwnOrder:
    """Of one call."""

    count: int = 0
    """Tokens to propose for the round after each verdict, at most; 0 for no proposals."""
    min_confidence: float = 0.0
    """It ends with the token after which its tokens together have a smaller probability; 0 if it does not."""
    run_length: int = 1
    """The rounds, at most, each by a pass and a step of its own: those after the first with what the target proposed,
    or without a proposal."""
    run_seconds: float = 0.0
    """How long they may take."""

    @property
    def alone(self) -> "OwnOrder":
        """The same for one round."""
        return replace(self, run_length=1, run_seconds=0.0)

    def most_tokens(self, depth: int) -> int:
        """Tokens that its rounds give, at most, if `depth` of the first one's proposal may be accepted."""
        return depth + 1 + (self.run_length - 1) * (self.count + 1)

    def room_after(self, count: int) -> int:
        """Tokens that have to be left of the output for a call with this order, if the one before it orders `count`
        tokens: then neither is cut."""
        if self.run_length > 1:
            return self.most_tokens(count) + self._room_for_last
        return 1 + max(count, self._room_for_last)

    def within(self, left: int, depth: int, most: int) -> "OwnOrder":
        """What of it fits `left` tokens of the output, after a proposal of which `depth` may be accepted: at most
        `most` tokens are proposed."""
        count = min(self.count, most)
        cut = replace(self, count=count)
        length = min(self.run_length, 1 + (left - depth - 1 - cut._room_for_last) // (count + 1))
        return replace(cut, run_length=length) if length > 1 else cut.alone

    @property
    def _room_for_last(self) -> int:
        """Tokens that its last proposal needs, whole, and the target's own after it."""
        return self.count + 1 if self.count else 0


NO_ORDER = OwnOrder()
LONGEST_RUN = 16
"""Rounds. More would save hardly any more calls, and a pass that fails costs the whole run."""


def run_within(seconds: float, left: int, order: OwnOrder = NO_ORDER) -> OwnOrder:
    """The order as one for a run, of an output with `left` tokens left. Half of them at most: the run may end early,
    and the next one, which is ordered before that is known, has to have room."""
    length = min(LONGEST_RUN, (left // (order.count + 1) + 1) // 2)
    return replace(order, run_length=length, run_seconds=seconds) if seconds and length > 1 else order

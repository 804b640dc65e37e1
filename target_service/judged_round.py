"""What one pass made of the proposal that it judged."""

from typing import NamedTuple


class JudgedRound(NamedTuple):
    """A verdict of a run, or the only one of a call."""

    proposed_count: int
    tokens: list[int]
    """The accepted tokens, and the target's own after them."""

    @property
    def accepted_count(self) -> int:
        return len(self.tokens) - 1

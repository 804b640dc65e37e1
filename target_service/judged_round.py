"""What one pass made of the proposal that it judged."""

from typing import NamedTuple


class JudgedRound(NamedTuple):
    """A verdict of a run, or the only one of a call."""

    depth: int
    """Proposed tokens of which all could be accepted: of a tree those of its longest path."""
    tokens: list[int]
    """The accepted tokens, and the target's own after them."""
    tree_token_count: int = 0
    """All tokens of a tree; 0 for a chain."""
    ended_at_leaf: bool = False
    """Whether a tree had no token after the accepted ones."""

    @property
    def accepted_count(self) -> int:
        return len(self.tokens) - 1

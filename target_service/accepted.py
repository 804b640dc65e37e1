"""What judges find."""

from typing import NamedTuple


class Accepted(NamedTuple):
    """For each work."""

    paths: list[list[int]]
    """Indices of the accepted tokens among the proposed ones, from the first on."""
    next_tokens: list[int]
    """The target's token after them."""

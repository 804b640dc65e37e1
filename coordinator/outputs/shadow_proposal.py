"""A proposal that no target sees: it is compared with the tokens that follow, to learn whether proposals would pay."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ShadowProposal:
    """Made beside a plain round.

    A token counts as accepted if it is the one that was committed in its place, with all before it. That is what the
    target would have said where its own choice decides: at temperature 0, and under the coupled rule.
    """

    token_ids: Sequence[int]
    asked: int
    """Tokens that the drafter was asked for; it may have given fewer."""
    length: int
    """Tokens of the history that it continues."""

    def accepted_count(self, history: Sequence[int]) -> int:
        """The tokens of it that were right, of those whose places are filled."""
        accepted = 0
        for token, committed in zip(self.token_ids, history[self.length :], strict=False):
            if token != committed:
                break
            accepted += 1
        return accepted

    def is_settled(self, history: Sequence[int]) -> bool:
        """Whether no further token can change the count."""
        filled = len(history) - self.length
        return filled >= len(self.token_ids) or self.accepted_count(history) < filled

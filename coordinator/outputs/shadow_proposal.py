"""A proposal that no target sees: it is compared with the tokens that follow, to learn whether proposals would pay."""

import asyncio
from collections.abc import Sequence

from coordinator.peers import Proposed


class ShadowProposal:
    """Made beside plain rounds, which do not wait for it.

    A token counts as accepted if it is the one that was committed in its place, with all before it. That is what the
    target would have said where its own choice decides: at temperature 0, and under the coupled rule.
    """

    def __init__(self, answer: "asyncio.Task[Proposed | None]", asked: int, length: int):
        """`answer` continues a history of `length` tokens."""
        self.asked = asked
        """Tokens that the draft was asked for."""
        self._answer = answer
        self._length = length

    @property
    def has_failed(self) -> bool:
        """Whether there will be no tokens."""
        return self._answer.done() and (self._answer.cancelled() or self._answer.result() is None)

    def accepted_count(self, history: Sequence[int]) -> int | None:
        """The tokens that were right; None until that is known, or if there are none."""
        if not self._answer.done() or self.has_failed:
            return None
        proposed = self._answer.result()
        assert proposed is not None
        followed = history[self._length : self._length + len(proposed.token_ids)]
        for index, (token, committed) in enumerate(zip(proposed.token_ids, followed, strict=False)):
            if token != committed:
                return index
        return len(followed) if len(followed) == len(proposed.token_ids) else None

"""What the stored answers of all sequences may take together: those that were not asked for longest are forgotten."""

from typing import Any

from specpair.sequences.held_sequence import HeldSequence

MAX_STORED_BYTES = 256 * 1024 * 1024
"""An answer with dense rows can take as much as a message, 64 MiB, and there may be as many answers as sequences."""


class AnswerMemory:
    """Runs on the event loop. An answer that was forgotten cannot be repeated: its step is stale, and the caller opens
    the sequence again."""

    def __init__(self, limit: int = MAX_STORED_BYTES):
        self._limit = limit
        self._sizes: dict[HeldSequence[Any], int] = {}
        """Oldest first."""
        self._total = 0

    def keep(self, held: HeldSequence[Any], size: int) -> None:
        """Counts the answer of a sequence. The newest answer is always kept."""
        self.release(held)
        self._sizes[held] = size
        self._total += size
        while self._total > self._limit and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            oldest.answer = None
            self.release(oldest)

    def release(self, held: HeldSequence[Any]) -> None:
        """The sequence has no stored answer any more."""
        self._total -= self._sizes.pop(held, 0)

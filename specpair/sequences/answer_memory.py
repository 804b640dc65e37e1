"""Limits the memory of all stored answers: drops the oldest answers first."""

from typing import Any

from specpair.sequences.held_sequence import HeldSequence

MAX_STORED_BYTES = 256 * 1024 * 1024
"""An answer with dense rows can be as large as a message, 64 MiB, and every sequence may have one."""


class AnswerMemory:
    """Runs on the event loop. A dropped answer cannot be repeated: its step is stale, and the caller opens the sequence
    again."""

    def __init__(self, limit: int = MAX_STORED_BYTES):
        self._limit = limit
        self._sizes: dict[HeldSequence[Any], int] = {}
        """Oldest first."""
        self._total = 0

    def keep(self, held: HeldSequence[Any], size: int) -> None:
        """Counts a new answer, and drops the oldest ones over the limit. The newest answer is always kept."""
        self.release(held)
        self._sizes[held] = size
        self._total += size
        while self._total > self._limit and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            oldest.before = None
            if not oldest.is_busy:
                oldest.answer = None
            self.release(oldest)

    def release(self, held: HeldSequence[Any]) -> None:
        """Stops counting the answer of a sequence."""
        self._total -= self._sizes.pop(held, 0)

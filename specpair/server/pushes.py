"""Messages that a service sends on a stream without being asked, beside its answers."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

MAX_PUSHED_BYTES = 16 * 1024 * 1024
"""Most bytes that wait to be written. What comes beyond is dropped: a client that does not read must not cost memory,
and what waits for it grows old."""


class _Push(NamedTuple):
    message: Any
    size: int
    is_current: Callable[[], bool]


class Pushes:
    """What waits to be pushed on one stream. Runs on the event loop.

    Nothing here is ever waited for, and nothing is sure to arrive.
    """

    def __init__(self, field: str, limit: int = MAX_PUSHED_BYTES):
        """`field` is the repeated field of the stream's message that takes what is pushed."""
        self._field = field
        self._limit = limit
        self._waiting: deque[_Push] = deque()
        self._held = 0
        self._begin: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        """Whether something waits."""
        return bool(self._waiting)

    def has_room(self, size: int) -> bool:
        """Whether the stream takes a message of so many bytes."""
        return self._begin is not None and self._held + size <= self._limit

    def open(self, begin: Callable[[], None]) -> None:
        """`begin` begins to write what waits, unless that is under way."""
        self._begin = begin

    def close(self) -> None:
        """The stream takes no more; what waits is dropped."""
        self._begin = None
        self._waiting.clear()
        self._held = 0

    def push(self, message: Any, is_current: Callable[[], bool]) -> bool:
        """Sends the message soon, if `is_current` still says so then. False if it is dropped at once: the stream has
        ended, or too much waits already."""
        size = message.ByteSize()
        if self._begin is None or not self.has_room(size):
            return False
        self._held += size
        self._waiting.append(_Push(message, size, is_current))
        self._begin()
        return True

    def fill(self, message: Any, room: int, *, is_alone: bool = False) -> bool:
        """Moves what waits into a message, up to `room` bytes; one at least, however large, if nothing else is in it.
        Whether it moved anything."""
        field = getattr(message, self._field)
        moved = False
        while self._waiting and (self._waiting[0].size <= room or (is_alone and not moved)):
            push = self._waiting.popleft()
            self._held -= push.size
            if push.is_current():
                field.append(push.message)
                room -= push.size
                moved = True
        return moved

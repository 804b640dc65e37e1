"""Wakes tasks that wait for a change."""

import asyncio
import contextlib
from collections.abc import Callable


class News:
    """Wakes all waiting tasks at each change. Created and used inside the running loop."""

    def __init__(self) -> None:
        self.count = 0
        """Changes so far."""
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls the listener at each change; it must not raise."""
        self._listeners.append(listener)

    def announce(self) -> None:
        """Announces a change."""
        self.count += 1
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in self._listeners:
            listener()

    async def wait(self, within: float) -> None:
        """Waits until the next change, at most `within` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()

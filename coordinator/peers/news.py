"""Wakes tasks that wait for a change."""

import asyncio
import contextlib


class News:
    """Wakes all waiting tasks at each change. Created and used inside the running loop."""

    def __init__(self) -> None:
        self.count = 0
        """Changes so far."""
        self._changed = asyncio.Event()

    def announce(self) -> None:
        """Announces a change."""
        self.count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, within: float) -> None:
        """Waits until the next change, at most `within` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()

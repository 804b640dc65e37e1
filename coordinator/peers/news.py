"""Something that changes now and then, and those who wait for it."""

import asyncio
import contextlib


class News:
    """Wakes all who wait at each change. Made and used inside the running loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def announce(self) -> None:
        """Something is different now."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, within: float) -> None:
        """Until the next change, or for `within` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()

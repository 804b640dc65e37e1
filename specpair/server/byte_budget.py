"""How many bytes may be held at once; whoever wants more has to wait."""

import asyncio


class ByteBudget:
    """Runs on the event loop. Something larger than the whole budget waits until nothing else is held."""

    def __init__(self, limit: int):
        self._limit = limit
        self._held = 0
        self._returned = asyncio.Event()

    async def take(self, size: int) -> None:
        """Waits until there is room."""
        while self._held and self._held + size > self._limit:
            self._returned.clear()
            await self._returned.wait()
        self._held += size

    def add(self, size: int) -> None:
        """What is there already cannot wait: it makes others wait."""
        self._held += size

    def give_back(self, size: int) -> None:
        assert size <= self._held
        self._held -= size
        self._returned.set()

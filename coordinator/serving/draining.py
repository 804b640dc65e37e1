"""Ends requests that are still running after the grace time of a stopping process."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from specpair.errors import ShuttingDownError

Result = TypeVar("Result")


class Draining:
    """The waits of running requests, which `end` can interrupt."""

    def __init__(self) -> None:
        self._is_over = False
        self._scopes: set[asyncio.Timeout] = set()

    async def unless_over(self, work: Awaitable[Result]) -> Result:
        """The result of the work. Once the grace time is over, raises ShuttingDownError instead of waiting for it.

        A result that needs no wait is still returned, so a client gets every token that was ready.
        """
        scope = asyncio.timeout(0 if self._is_over else None)
        self._scopes.add(scope)
        try:
            async with scope:
                return await work
        except TimeoutError:
            if scope.expired():
                raise ShuttingDownError from None
            raise
        finally:
            self._scopes.discard(scope)

    def end(self) -> None:
        """Ends all waits: the grace time is over."""
        self._is_over = True
        now = asyncio.get_running_loop().time()
        for scope in self._scopes:
            scope.reschedule(now)

"""Ends work when its client disconnects or the process stops."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from typing import Any, TypeVar

from specpair.errors import ShuttingDownError

Result = TypeVar("Result")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientGoneError(Exception):
    """The client disconnected; the answer is no longer needed."""


async def unless_gone(receive: Receive, stop: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result:
    """Awaits the work, and cancels it when the connection is closed or `stop` is set.

    `receive` is ASGI's, after the body was read. The work has ended when this returns. Raises ClientGoneError,
    ShuttingDownError, and whatever the work raises.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_wait_until_gone(receive))
    stopping = asyncio.create_task(stop.wait())
    tasks = (working, watching, stopping)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGoneError if watching.done() else ShuttingDownError
    finally:
        await _end(tasks)
        del working, tasks  # else an error of the work refers to itself, and keeps the request until that is collected


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

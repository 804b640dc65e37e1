"""Injects fault events into real processes and the connections to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.faults.instance import Instance
from tests.faults.link import Direction
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Event, Kind

LONGEST_DELAY = 0.3
"""Seconds in each direction."""
FASTEST = 200_000.0
SLOWEST = 5_000.0
"""Bytes per second of a throttled connection; a round is some hundred bytes."""
MOST_BYTES = 20_000
DEAD_SHARE = 0.25
"""Share of an event's time for which a killed process stays dead; its start adds to that."""


async def break_process(instance: Instance, event: Event) -> None:
    """Returns when the process serves again. Raises InstanceError if it does not."""
    if event.kind is Kind.STOP:
        instance.stop()
        try:
            await asyncio.sleep(event.seconds)
        finally:
            instance.go_on()
        return
    if event.kind is Kind.KILL:
        await instance.kill()
        await asyncio.sleep(event.seconds * DEAD_SHARE)
    else:
        await instance.terminate()
    await instance.start()
    await instance.wait_until_ready()


async def break_way(way: FaultProxy, event: Event) -> None:
    """Returns when the connection works normally again."""
    async with broken(way, event):
        await asyncio.sleep(event.seconds)


@asynccontextmanager
async def broken(way: FaultProxy, event: Event) -> AsyncIterator[None]:
    """Applies for as long as the body runs."""
    _FAULTS[event.kind](way, event.amount)
    try:
        yield
    finally:
        way.heal()


def _half_open(way: FaultProxy, amount: float) -> None:
    way.half_open(list(Direction)[int(amount * 2)])


def _reset(way: FaultProxy, amount: float) -> None:
    """In half of the cases no new connection gets through for a while, either."""
    way.reset()
    if amount < 0.5:
        way.refuse()


def _throttle(way: FaultProxy, amount: float) -> None:
    way.throttle(SLOWEST + amount * (FASTEST - SLOWEST))


_FAULTS: dict[Kind, Callable[[FaultProxy, float], None]] = {
    Kind.DELAY: lambda way, amount: way.delay(amount * LONGEST_DELAY),
    Kind.THROTTLE: _throttle,
    Kind.DROP: lambda way, amount: way.drop(),
    Kind.HALF_OPEN: _half_open,
    Kind.RESET: _reset,
    Kind.REFUSE: lambda way, amount: way.refuse(),
    Kind.LIMIT: lambda way, amount: way.limit(int(amount * MOST_BYTES)),
    Kind.FORGET: lambda way, amount: way.forget(),
}

"""One connection through the proxy: two directions, each with its own faults."""

import asyncio
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

CHUNK_BYTES = 64 * 1024
HELD_CHUNKS = 64
"""Chunks that wait in one direction; beyond that the sender is not read, and its own buffers fill."""

SLICE_SECONDS = 0.05
"""A throttled direction passes on what it may send in this time, then waits as long."""

End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Direction(StrEnum):
    """The direction of bytes."""

    TO_SERVER = "to_server"
    TO_CLIENT = "to_client"


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The current faults."""

    delay_seconds: float = 0.0
    bytes_per_second: float | None = None
    silent: frozenset[Direction] = frozenset()
    remaining_bytes: int | None = None
    """The number of bytes that a new connection may carry."""


class Weather:
    """The faults of a proxy; announces changes."""

    def __init__(self) -> None:
        self.faults = Faults()
        self._changed = asyncio.Event()

    def change(self, **faults: object) -> None:
        self._set(replace(self.faults, **faults))  # pyright: ignore[reportArgumentType]

    def clear(self) -> None:
        self._set(Faults())

    def _set(self, faults: Faults) -> None:
        self.faults = faults
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until_heard(self, direction: Direction) -> None:
        """Until bytes pass in that direction."""
        while direction in self.faults.silent:
            await self._changed.wait()


class LimitReachedError(Exception):
    """The connection has carried its limit of bytes."""


class Link:
    """A connection from a client and the one to the server that belongs to it."""

    def __init__(self, near: End, far: End, weather: Weather):
        self._near, self._far = near, far
        self._weather = weather
        self._remaining = weather.faults.remaining_bytes
        self._is_forgotten = False

    async def run(self) -> None:
        """Until both directions have ended, or one broke."""
        pumps = (
            Pump(self._near[0], self._far[1], Direction.TO_SERVER, self._weather, self),
            Pump(self._far[0], self._near[1], Direction.TO_CLIENT, self._weather, self),
        )
        try:
            async with asyncio.TaskGroup() as group:
                for pump in pumps:
                    group.create_task(pump.read())
                    group.create_task(pump.write())
        except* OSError:
            self.reset()
        except* LimitReachedError:
            pass
        finally:
            for _, writer in (self._near, self._far):
                writer.close()

    def allow(self, byte_count: int | None) -> None:
        """So many bytes more; None for no limit."""
        self._remaining = byte_count

    def take(self, byte_count: int) -> int:
        """How many of so many bytes may pass; fewer only once, for then the connection ends."""
        if self._remaining is None:
            return byte_count
        taken = min(byte_count, self._remaining)
        self._remaining -= taken
        return taken

    def forget(self) -> None:
        """Nothing passes any more, for good."""
        self._is_forgotten = True

    async def wait_if_forgotten(self) -> None:
        """For good, if the connection is forgotten."""
        if self._is_forgotten:
            await asyncio.Event().wait()

    def reset(self) -> None:
        """Both sides get a reset, not an end."""
        for _, writer in (self._near, self._far):
            connection = writer.get_extra_info("socket")
            with suppress(OSError, AttributeError, ValueError):  # a lost connection has no socket
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Pump:
    """One direction: reads, waits as the faults require, writes."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: Direction,
        weather: Weather,
        link: Link,
    ):
        self._reader, self._writer = reader, writer
        self._direction = direction
        self._weather = weather
        self._link = link
        self._held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD_CHUNKS)

    async def read(self) -> None:
        """Takes in chunks, and notes when they came, until there are no more."""
        data = b"-"
        while data:
            data = await self._reader.read(CHUNK_BYTES)
            await self._held.put((time.monotonic(), data))

    async def write(self) -> None:
        """Passes them on. Raises OSError where a side is gone, LimitReachedError behind the last byte allowed."""
        while True:
            arrived_at, data = await self._held.get()
            await self._wait(arrived_at)
            if not data:
                return self._end()
            while data:
                data = await self._pass_on(data)

    async def _wait(self, arrived_at: float) -> None:
        delay = arrived_at + self._weather.faults.delay_seconds - time.monotonic()
        if delay > 0:
            await asyncio.sleep(delay)
        await self._weather.wait_until_heard(self._direction)
        await self._link.wait_if_forgotten()

    async def _pass_on(self, data: bytes) -> bytes:
        """As much as may pass at once; returns the rest."""
        rate = self._weather.faults.bytes_per_second
        size = len(data) if rate is None else max(1, int(rate * SLICE_SECONDS))
        piece = data[:size]
        allowed = self._link.take(len(piece))
        if self._writer.transport.is_closing():  # uvloop would say so by a RuntimeError
            raise ConnectionResetError
        self._writer.write(piece[:allowed])
        await self._writer.drain()
        if allowed < len(piece):
            raise LimitReachedError
        if rate is not None:
            await asyncio.sleep(SLICE_SECONDS)
        return data[size:]

    def _end(self) -> None:
        with suppress(OSError, RuntimeError):
            self._writer.write_eof()

"""A link that takes time: a TCP proxy that passes bytes on later, in order and without a limit on how many.

`delay_line` runs it as a process of its own, so that what it costs is not taken from the services' or the client's
time. It sleeps between bytes. It takes no part in what is sent: it does not know messages, and drops nothing.
"""

import asyncio
import os
import selectors
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

LOOPBACK = "127.0.0.1"
READY = b"ready\n"


class Delay:
    """How late bytes arrive, in each direction."""

    seconds = 0.0


class Way:
    """One direction of the link, for all connections: bytes leave one after the other, as fast as it carries them."""

    def __init__(self, delay: Delay, bytes_per_second: float):
        """0 bytes per second: any number at once."""
        self._delay = delay
        self._seconds_per_byte = 1.0 / bytes_per_second if bytes_per_second else 0.0
        self._free_at = 0.0

    def arrival(self, now: float, count: int) -> float:
        """When as many bytes, sent now, have arrived."""
        self._free_at = max(self._free_at, now) + count * self._seconds_per_byte
        return self._free_at + self._delay.seconds


class Direction(asyncio.Protocol):
    """One end of a connection: what arrives here leaves at the other end after the delay."""

    def __init__(self, way: Way):
        """`way` takes what arrives here."""
        self._way = way
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes]] = deque()
        """When to send what, in order; empty bytes are the end."""
        self._is_armed = False
        self._has_received_end = False
        self._has_sent_end = False
        self._transport: asyncio.Transport | None = None
        self._other: Direction | None = None

    def join(self, other: "Direction") -> None:
        """Both ends exist: what waited for the other end begins to leave."""
        self._other = other
        self._arm()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._put(data)

    def eof_received(self) -> bool:
        """Whether the connection stays open: what is under way to this end must still arrive."""
        self._receive_end()
        return not self._has_sent_end

    def connection_lost(self, exc: Exception | None) -> None:
        self._receive_end()

    def send(self, data: bytes) -> None:
        """Called by the other end, at the time when the bytes leave here."""
        if self._transport is None or self._transport.is_closing():
            return
        if data:
            self._transport.write(data)
            return
        self._has_sent_end = True
        if self._has_received_end:
            self._transport.close()
        else:
            self._transport.write_eof()

    def close(self) -> None:
        """Called if there is no other end."""
        if self._transport is not None:
            self._transport.close()

    def _receive_end(self) -> None:
        if not self._has_received_end:
            self._has_received_end = True
            self._put(b"")

    def _put(self, data: bytes) -> None:
        self._waiting.append((self._way.arrival(self._loop.time(), len(data)), data))
        self._arm()

    def _arm(self) -> None:
        """Sets the timer for the first bytes: one timer for all keeps their order."""
        if self._waiting and self._other is not None and not self._is_armed:
            self._is_armed = True
            self._loop.call_at(self._waiting[0][0], self._pass_on)

    def _pass_on(self) -> None:
        self._is_armed = False
        assert self._other is not None
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            self._other.send(self._waiting.popleft()[1])
        self._arm()


class DelayLine:
    """The running process. Made by `delay_line`."""

    def __init__(self, process: asyncio.subprocess.Process, address: str):
        self._process = process
        self.address = address
        """Where it listens, as `host:port`."""

    async def set_round_trip(self, seconds: float) -> None:
        """From now on bytes take half of this each way; returns when that is so."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds / 2!r}\n".encode())
        await self._process.stdin.drain()
        await self._read_ready()

    async def _read_ready(self) -> None:
        assert self._process.stdout is not None
        if await self._process.stdout.readline() != READY:
            raise ConnectionError("the delay line has ended")


@asynccontextmanager
async def delay_line(port: int, upstream_port: int, bytes_per_second: float = 0.0) -> AsyncIterator[DelayLine]:
    """A link from a port to another one, both on the loopback interface, at first without a delay. It carries so many
    bytes a second each way; 0 for any number."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.apart.delay_line", str(port), str(upstream_port), repr(bytes_per_second)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to us alone
    )
    line = DelayLine(process, f"{LOOPBACK}:{port}")
    try:
        await line.set_round_trip(0.0)
        yield line
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def run(port: int, upstream_port: int, bytes_per_second: float) -> None:
    """Passes bytes on until standard input ends. A line there is a delay in seconds, answered once it is in force."""
    loop, delay, tasks = asyncio.get_running_loop(), Delay(), set[asyncio.Task[None]]()
    there, back = (Way(delay, bytes_per_second) for _ in range(2))

    def accepted() -> Direction:
        near = Direction(there)
        task = loop.create_task(connect(near, back, upstream_port))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return near

    await loop.create_server(accepted, LOOPBACK, port)
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        delay.seconds = float(line)
        os.write(sys.stdout.fileno(), READY)


async def connect(near: Direction, back: Way, upstream_port: int) -> None:
    """The other end of an accepted connection; without one, the connection is closed."""
    far = Direction(back)
    try:
        await asyncio.get_running_loop().create_connection(lambda: far, LOOPBACK, upstream_port)
    except OSError:
        near.close()
        return
    near.join(far)
    far.join(near)


def precise_loop() -> asyncio.SelectorEventLoop:
    """Its timers are exact to tens of microseconds: `select` takes any timeout, `epoll` whole milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def main() -> None:
    port, upstream_port, bytes_per_second = sys.argv[1:]
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(run(int(port), int(upstream_port), float(bytes_per_second)))


if __name__ == "__main__":
    main()

"""A TCP proxy that fails on purpose, between any two parties. Bytes are never reordered, lost or doubled: TCP does not
do that. Faults affect when and whether they arrive, and whether the connection lives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.link import Direction, Link, Weather

LOOPBACK = "127.0.0.1"


class FaultProxy:
    """Listens on a port of its own and passes everything on to `upstream`, as well as it is allowed to.

    Made by `fault_proxy`. Faults hold for connections that are there and for those to come, until `heal`, unless they
    say otherwise. They are set by plain methods from the event loop of the proxy.
    """

    def __init__(self, upstream: str):
        """`upstream` is `host:port`; whether somebody listens there is seen with each connection."""
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._weather = Weather()
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_refusing = False
        self._server: asyncio.Server | None = None
        self.address = ""
        """Where it listens, as `host:port`."""
        self.connection_count = 0
        """Connections since the start."""

    @property
    def open_count(self) -> int:
        """Connections that are there now."""
        return len(self._links)

    def delay(self, seconds: float) -> None:
        """Bytes arrive so much later, in both directions."""
        self._weather.change(delay_seconds=seconds)

    def throttle(self, bytes_per_second: float) -> None:
        """So many bytes pass per second, in each direction of each connection."""
        self._weather.change(bytes_per_second=bytes_per_second)

    def drop(self) -> None:
        """A black hole: nothing arrives on either side, without any notice. New connections are taken and stay silent.

        After `heal` all of it arrives, as TCP's repetitions would make it.
        """
        self._weather.change(silent=frozenset(Direction))

    def half_open(self, silent: Direction) -> None:
        """As `drop`, in one direction alone."""
        self._weather.change(silent=frozenset({silent}))

    def limit(self, byte_count: int) -> None:
        """Each connection is closed after so many further bytes, perhaps in the middle of a message."""
        self._weather.change(remaining_bytes=byte_count)
        for link in self._links:
            link.allow(byte_count)

    def refuse(self) -> None:
        """New connections are reset at once; those that are there go on."""
        self._is_refusing = True

    def reset(self) -> None:
        """Connections that are there end at once, with a reset on both sides."""
        for link in list(self._links):
            link.reset()

    def forget(self) -> None:
        """Connections that are there are silent for good, as when a router loses its table; new ones are not."""
        for link in self._links:
            link.forget()

    def heal(self) -> None:
        """Ends every fault; what was held back arrives. Connections that were forgotten stay silent."""
        self._is_refusing = False
        self._weather.clear()
        for link in self._links:
            link.allow(None)

    async def start(self) -> None:
        """Listens on a free port."""
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.address = f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Ends the proxy and every connection through it."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        if self._is_refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        link = Link((reader, writer), (far_reader, far_writer), self._weather)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)


@asynccontextmanager
async def fault_proxy(upstream: str) -> AsyncIterator[FaultProxy]:
    """A proxy to `host:port` that listens."""
    proxy = FaultProxy(upstream)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()

"""A TCP load balancer, as simple as can be: each connection goes to the next server that takes it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle

from tests.faults.link import Link, Weather

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def balancer(addresses: Sequence[str]) -> AsyncIterator[str]:
    """The address, `host:port`, of a balancer over servers at these addresses."""
    upcoming = cycle([(host, int(port)) for host, _, port in (address.rpartition(":") for address in addresses)])
    links: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        links.add(task)
        task.add_done_callback(links.discard)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in addresses:
            try:
                far = await asyncio.open_connection(*next(upcoming))
            except OSError:
                continue
            return await Link((reader, writer), far, Weather()).run()
        writer.transport.abort()

    server = await asyncio.start_server(accept, LOOPBACK, 0)
    try:
        yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(links):
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)

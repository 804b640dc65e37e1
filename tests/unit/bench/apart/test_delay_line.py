"""The link that takes time: everything arrives, in order and no sooner than it should, as much of it as is sent."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bench.apart.delay_line import LOOPBACK, DelayLine, delay_line
from command.pair.local_pair import free_port

ROUND_TRIP = 0.04
TIMEOUT = 60.0
PIECE = 50_000
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def through_a_line(
    work: Callable[[DelayLine], Awaitable[None]], serve: Serve = echo, bytes_per_second: float = 0.0
) -> None:
    """Does the work with a line to a server."""
    port = free_port()
    async with asyncio.timeout(TIMEOUT), delay_line(free_port(), port, bytes_per_second) as line:
        server = await asyncio.start_server(serve, LOOPBACK, port)
        async with server:
            await work(line)


@asynccontextmanager
async def connected(line: DelayLine) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = line.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


def test_an_answer_takes_the_round_trip_that_is_set() -> None:
    async def work(line: DelayLine) -> None:
        async with connected(line) as (reader, writer):
            for round_trip in (ROUND_TRIP, 0.0, 2 * ROUND_TRIP):
                await line.set_round_trip(round_trip)
                started = time.perf_counter()
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"
                assert time.perf_counter() - started >= round_trip

    asyncio.run(through_a_line(work))


def test_bytes_take_the_time_that_the_link_needs_for_them_also_on_two_connections() -> None:
    rate = 4e6

    async def exchange(line: DelayLine) -> None:
        async with connected(line) as (reader, writer):
            writer.write(bytes(200_000))
            await reader.readexactly(200_000)

    async def work(line: DelayLine) -> None:
        started = time.perf_counter()
        await exchange(line)
        assert time.perf_counter() - started >= 200_000 / rate
        started = time.perf_counter()
        await asyncio.gather(exchange(line), exchange(line))
        assert time.perf_counter() - started >= 400_000 / rate

    asyncio.run(through_a_line(work, bytes_per_second=rate))


def test_what_is_sent_arrives_whole_and_in_order_while_the_delay_changes() -> None:
    """Much more of it than the buffers of a connection hold."""

    async def work(line: DelayLine) -> None:
        async def send_and_compare(seed: int) -> None:
            changes = random.Random(seed)
            sent = changes.randbytes(3_000_000)
            async with connected(line) as (reader, writer):
                received = asyncio.create_task(reader.read(-1))
                for start in range(0, len(sent), PIECE):
                    writer.write(sent[start : start + PIECE])
                    await line.set_round_trip(changes.uniform(0.0, ROUND_TRIP))
                writer.write_eof()  # what is under way comes back all the same
                assert await received == sent

        await send_and_compare(1)
        await send_and_compare(2)

    asyncio.run(through_a_line(work))


def test_the_end_of_a_connection_is_passed_on() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.close()

    async def work(line: DelayLine) -> None:
        async with connected(line) as (reader, _):
            assert await reader.read() == b"bye"

    asyncio.run(through_a_line(work, hang_up))


def test_a_connection_to_nobody_is_closed() -> None:
    async def work() -> None:
        async with (
            asyncio.timeout(TIMEOUT),
            delay_line(free_port(), free_port()) as line,
            connected(line) as (reader, _),
        ):
            assert await reader.read() == b""

    asyncio.run(work())

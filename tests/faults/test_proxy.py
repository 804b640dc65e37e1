"""The fault proxy does what it says, and nothing before it is told to."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from tests.faults.link import Direction
from tests.faults.proxy import FaultProxy, fault_proxy

SOON = 0.3
"""Seconds after which what has not come is held back. Only silence is waited for; what comes may take its time."""
PATIENCE = 10.0


class Conversation:
    """A client's connection to a server that says everything again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    async def hears(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            assert await self.reader.readexactly(len(data)) == data

    async def says(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def hears_nothing(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON):
                await self.reader.readexactly(1)


@asynccontextmanager
async def talk(proxy: FaultProxy) -> AsyncIterator[Conversation]:
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Conversation(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def echo_behind_proxy() -> AsyncIterator[tuple[FaultProxy, bytearray]]:
    """The proxy, and what arrived at the server."""
    heard = bytearray()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                heard.extend(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        async with fault_proxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
            yield proxy, heard
    finally:
        server.close()


async def test_without_faults_everything_passes() -> None:
    data = bytes(range(256)) * 8192
    async with echo_behind_proxy() as (proxy, heard), talk(proxy) as conversation:
        async with asyncio.TaskGroup() as group:
            group.create_task(conversation.says(data))
            group.create_task(conversation.hears(data))
        assert bytes(heard) == data
        conversation.writer.write_eof()
        assert await conversation.reader.read() == b""
        assert proxy.connection_count == 1
        async with asyncio.timeout(PATIENCE):
            while proxy.open_count:
                await asyncio.sleep(0.01)


async def test_delay() -> None:
    async with echo_behind_proxy() as (proxy, _), talk(proxy) as conversation:
        proxy.delay(0.2)
        start = time.monotonic()
        await conversation.says(b"a")
        await conversation.hears(b"a")
        assert time.monotonic() - start >= 0.4


async def test_throttle() -> None:
    async with echo_behind_proxy() as (proxy, _), talk(proxy) as conversation:
        proxy.throttle(1000)
        start = time.monotonic()
        await conversation.says(bytes(400))
        await conversation.hears(bytes(400))
        assert time.monotonic() - start >= 0.3
        proxy.heal()
        await conversation.says(bytes(500_000))
        await conversation.hears(bytes(500_000))


async def test_drop_holds_everything_back_until_it_is_healed() -> None:
    async with echo_behind_proxy() as (proxy, heard), talk(proxy) as conversation:
        await conversation.says(b"a")
        await conversation.hears(b"a")
        proxy.drop()
        await conversation.says(b"b")
        await conversation.hears_nothing()
        assert heard == b"a"
        async with talk(proxy) as late:
            await late.says(b"c")
            await late.hears_nothing()
            proxy.heal()
            await conversation.hears(b"b")
            await late.hears(b"c")


@pytest.mark.parametrize("silent", Direction)
async def test_half_open(silent: Direction) -> None:
    async with echo_behind_proxy() as (proxy, heard), talk(proxy) as conversation:
        proxy.half_open(silent)
        await conversation.says(b"a")
        await conversation.hears_nothing()
        assert heard == (b"" if silent is Direction.TO_SERVER else b"a")
        proxy.heal()
        await conversation.hears(b"a")


async def test_reset_ends_what_is_there_alone() -> None:
    async with echo_behind_proxy() as (proxy, _), talk(proxy) as conversation:
        await conversation.says(b"a")
        await conversation.hears(b"a")
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            await conversation.reader.readexactly(1)
        async with talk(proxy) as next_one:
            await next_one.says(b"b")
            await next_one.hears(b"b")


async def test_what_was_held_back_when_the_connection_ended_harms_nobody() -> None:
    """Under uvloop, as in a run, where a write to a closed connection is an error of its own."""

    async def reset_with_bytes_held_back() -> list[Any]:
        async with echo_behind_proxy() as (proxy, _), talk(proxy) as conversation:
            await conversation.says(b"a")
            await conversation.hears(b"a")
            tasks = list(proxy._tasks)
            proxy.delay(SOON)
            await conversation.says(b"b")
            await asyncio.sleep(SOON / 3)
            proxy.reset()
            async with asyncio.timeout(PATIENCE):
                return await asyncio.gather(*tasks, return_exceptions=True)

    assert await asyncio.to_thread(uvloop.run, reset_with_bytes_held_back()) == [None]


async def test_refuse_ends_what_comes_alone() -> None:
    async with echo_behind_proxy() as (proxy, _), talk(proxy) as conversation:
        await conversation.says(b"a")
        await conversation.hears(b"a")
        proxy.refuse()
        async with talk(proxy) as refused:
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await refused.reader.readexactly(1)
        await conversation.says(b"b")
        await conversation.hears(b"b")
        proxy.heal()
        async with talk(proxy) as next_one:
            await next_one.says(b"c")
            await next_one.hears(b"c")


async def test_limit_closes_behind_the_last_byte() -> None:
    async with echo_behind_proxy() as (proxy, heard), talk(proxy) as conversation:
        await conversation.says(b"ab")
        await conversation.hears(b"ab")
        proxy.limit(3)
        await conversation.says(b"cdefgh")
        async with asyncio.timeout(PATIENCE):
            assert await conversation.reader.read() == b""
        assert heard == b"abcde"
        proxy.heal()
        async with talk(proxy) as next_one:
            await next_one.says(b"abcdefgh")
            await next_one.hears(b"abcdefgh")


async def test_forgotten_connections_stay_silent() -> None:
    async with echo_behind_proxy() as (proxy, _), talk(proxy) as conversation:
        await conversation.says(b"a")
        await conversation.hears(b"a")
        proxy.forget()
        proxy.heal()
        await conversation.says(b"b")
        await conversation.hears_nothing()
        async with talk(proxy) as next_one:
            await next_one.says(b"c")
            await next_one.hears(b"c")


async def test_nobody_behind_it() -> None:
    async with fault_proxy("127.0.0.1:1") as proxy, talk(proxy) as conversation:
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await conversation.reader.readexactly(1)

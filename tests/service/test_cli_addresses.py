"""What the command says if something else than a coordinator answers at its address."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner

from command.main import app
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer


async def problem_at(port: int) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["info", "--address", f"127.0.0.1:{port}"])
    assert result.exit_code == 1
    return result.stderr


@pytest.fixture
async def other_port() -> AsyncIterator[int]:
    """Of a service that has no coordinator's calls."""
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0.0))
    port = await server.start()
    await server.set_ready(True)
    yield port
    await server.stop()


@pytest.fixture
async def http_port() -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_another_service(other_port: int) -> None:
    assert "is no coordinator; draft and target have ports of their own" in await problem_at(other_port)


async def test_a_port_of_http(http_port: int) -> None:
    assert "--address is not the port of HTTP" in await problem_at(http_port)

"""What the command says if something else than a coordinator answers at its address, or gRPC in its place."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from command.main import app
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer
from specpair.v1.coordinator_service_pb2_grpc import (
    CoordinatorServiceServicer,
    add_CoordinatorServiceServicer_to_server,
)

LIMIT = 1024 * 1024


async def problem_at(port: int, *arguments: str, stdin: str | None = None, status: int = 1) -> str:
    said = [*(arguments or ["info"]), "--address", f"127.0.0.1:{port}"]
    result = await asyncio.to_thread(CliRunner().invoke, app, said, input=stdin)
    assert result.exit_code == status
    return result.stderr


@pytest.fixture
async def other_port() -> AsyncIterator[int]:
    """Of a service that has no coordinator's calls."""
    async with serving(ServiceServer(ServerConfig(port=0, grace_seconds=0.0))) as port:
        yield port


@pytest.fixture
async def narrow_port() -> AsyncIterator[int]:
    """Of a coordinator that takes less than others."""
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0.0, max_message_bytes=LIMIT))
    add_CoordinatorServiceServicer_to_server(CoordinatorServiceServicer(), server)
    async with serving(server) as port:
        yield port


@asynccontextmanager
async def serving(server: ServiceServer) -> AsyncIterator[int]:
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


async def test_a_request_above_the_limit_of_grpc(narrow_port: int) -> None:
    problem = await problem_at(narrow_port, "generate", "-", stdin="x" * LIMIT, status=2)
    assert re.fullmatch(
        rf"specpair: the request is too large: it has 10485\d\d bytes, and the coordinator takes at most {LIMIT}\n",
        problem,
    )

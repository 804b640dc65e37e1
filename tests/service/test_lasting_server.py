"""A call whose path is no UTF-8 ends grpc.aio's server; ours goes on."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import NoReturn

import grpc.aio
import pytest

from specpair.server.lasting_server import LastingServer
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from tests.hostile.frames import deadly_call
from tests.hostile.web import exchange
from tests.service.rpc_servers import channel_to, draft_server


async def test_a_server_is_replaced_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with draft_server() as (_, port), channel_to(port) as channel:
        for step in range(3):
            await exchange(f"127.0.0.1:{port}", [deadly_call()], patience=0.2)
            answer = await DraftServiceStub(channel).ProposeTokens(
                pb.ProposeTokensRequest(step=step), timeout=10, wait_for_ready=True
            )
            assert answer.step == step
    assert caplog.text.count("starting a new one") == 3
    socket.create_server(("127.0.0.1", port)).close()  # nobody listens any more


async def test_a_server_is_replaced_while_the_connection_that_ended_it_stays_open() -> None:
    async with draft_server() as (_, port), channel_to(port) as channel:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(deadly_call())
        await writer.drain()
        await asyncio.sleep(0.2)
        answer = await DraftServiceStub(channel).ProposeTokens(
            pb.ProposeTokensRequest(step=7), timeout=20, wait_for_ready=True
        )
        assert answer.step == 7
        writer.close()


async def test_a_server_is_kept_where_nobody_can_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process has no descriptor left: that is not the server's end, and its calls go on."""

    async def fail(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "too many open files")

    server = LastingServer(grpc.aio.server, lambda server, _: server.add_insecure_port("127.0.0.1:0"), lambda _: None)
    port = await server.start()
    assert await server._is_open(port)
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "open_connection", fail)
        assert await server._is_open(port)
    await server.stop(0)
    assert not await server._is_open(port)


async def test_without_its_port_the_service_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specpair.server.lasting_server.REOPEN_SECONDS", 0.3)
    failures: list[str] = []
    made: list[grpc.aio.Server] = []

    def make() -> grpc.aio.Server:
        made.append(grpc.aio.server(options=[("grpc.so_reuseport", 0)]))
        return made[-1]

    def listen(server: grpc.aio.Server, port: int | None) -> int:
        if port is not None:
            raise RuntimeError("taken")
        return server.add_insecure_port("127.0.0.1:0")

    server = LastingServer(make, listen, failures.append)
    port = await server.start()
    await with_short_wait(lambda: bool(failures), port)
    assert failures == ["its port is lost"]
    await server.stop(0)


async def with_short_wait(is_done: Callable[[], bool], port: int) -> None:
    await exchange(f"127.0.0.1:{port}", [deadly_call()], patience=0.2)
    async with asyncio.timeout(60):
        while not is_done():
            await asyncio.sleep(0.05)

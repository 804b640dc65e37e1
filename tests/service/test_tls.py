"""TLS and mTLS over real connections: who trusts whom, and certificates that change while both sides run."""

import asyncio
import ssl
import sys
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest
import uvicorn
import uvloop

from specpair.client.channel import proposal_caller
from specpair.client.tls_hints import tls_hint
from specpair.errors import InvalidFieldError
from specpair.security.credentials import http_client_context
from specpair.security.settings import PLAIN, ChannelSecurity, ServerSecurity, TlsFiles
from specpair.server.config import ServerConfig
from specpair.server.http_server import CERTIFICATE_NAME, QuietServer, connection_options, listen
from specpair.server.metrics_endpoint import metrics_endpoint
from specpair.server.metrics_registry import service_registry
from specpair.server.server import ServiceServer
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from tests.faults.proxy import fault_proxy
from tests.service.certificates import Authority
from tests.service.rpc_servers import channel_to, draft_server
from tests.service.test_authentication import tell_name

TIMEOUT = 60.0


async def ask(port: int, security: ChannelSecurity) -> str:
    """The name under which the server knows us, over a new connection."""
    async with channel_to(port, security) as channel:
        return (await DraftServiceStub(channel).ProposeTokens(pb.ProposeTokensRequest(), timeout=TIMEOUT)).instance_id


async def refusal(port: int, security: ChannelSecurity) -> str:
    """The details of an UNAVAILABLE, over a new connection."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(port, security)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return caught.value.details() or ""


def trusting(authority: Authority, **changes: str) -> ChannelSecurity:
    return ChannelSecurity(tls=TlsFiles(ca=str(authority.path)), **changes)


async def test_calls_and_streams_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with draft_server(tell_name, security=ServerSecurity(tls=authority.tls("server"))) as (_, port):
        assert await ask(port, trusting(authority)) == ""
        async with channel_to(port, trusting(authority)) as channel:
            assert (await proposal_caller(channel).call(pb.ProposeTokensRequest(step=3), TIMEOUT)).step == 3


async def test_mistakes_are_named(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    mutual = authority.tls("mutual", ca=authority.path)
    async with (
        draft_server(security=ServerSecurity(tls=authority.tls("server"))) as (_, port),
        draft_server(security=ServerSecurity(tls=authority.tls("named", "elsewhere.example"))) as (_, named_port),
        draft_server(security=ServerSecurity(tls=mutual)) as (_, mutual_port),
        draft_server() as (_, plain_port),
    ):
        mistakes = [
            (port, trusting(stranger), "no trusted authority issued it"),
            (named_port, trusting(authority), "has another name"),
            (plain_port, trusting(authority), "speaks plain text"),
            (port, PLAIN, "perhaps it speaks TLS"),
            (mutual_port, trusting(authority), "perhaps it requires a certificate"),
        ]
        for asked, security, hint in mistakes:
            details = await refusal(asked, security)
            assert hint in str(tls_hint(details, speaks_tls=security.tls is not None)), details
        assert await ask(named_port, trusting(authority, server_name="elsewhere.example")) == ""


async def test_mutual_tls_names_the_client_by_its_certificate(tmp_path: Path) -> None:
    authority, clients, strangers = (Authority(tmp_path, name) for name in ("ca", "clients", "strangers"))
    server = authority.tls("server", ca=clients.path)
    async with draft_server(tell_name, security=ServerSecurity(tls=server)) as (_, port):
        named = clients.tls("named", "coordinator.example", common_name="coordinator-1", ca=authority.path)
        assert await ask(port, ChannelSecurity(tls=named)) == "coordinator-1"
        unnamed = clients.tls("unnamed", "coordinator.example", ca=authority.path)
        assert await ask(port, ChannelSecurity(tls=unnamed)) == "coordinator.example"
        await refusal(port, ChannelSecurity(tls=strangers.tls("stranger", ca=authority.path)))
        await refusal(port, trusting(authority))


async def test_a_servers_certificate_changes_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    async with (
        draft_server(tell_name, security=ServerSecurity(tls=old.tls("server"))) as (_, port),
        channel_to(port, trusting(old)) as channel,
    ):
        stub = DraftServiceStub(channel)
        await stub.ProposeTokens(pb.ProposeTokensRequest(), timeout=TIMEOUT)
        new.issue("server")
        await ask(port, trusting(new))
        await refusal(port, trusting(old))
        await stub.ProposeTokens(pb.ProposeTokensRequest(), timeout=TIMEOUT)  # its connection goes on


async def test_a_half_changed_certificate_is_not_used(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    async with draft_server(tell_name, security=ServerSecurity(tls=old.tls("server"))) as (_, port):
        await ask(port, trusting(old))
        key = (tmp_path / "server.key").read_bytes()
        new.issue("server")
        new_key = (tmp_path / "server.key").read_bytes()
        (tmp_path / "server.key").write_bytes(key)
        await ask(port, trusting(old))
        (tmp_path / "server.key").write_bytes(new_key)
        await ask(port, trusting(new))


async def test_clients_are_known_by_the_authorities_of_now(tmp_path: Path) -> None:
    authority, old, new = (Authority(tmp_path, name) for name in ("ca", "old", "new"))
    clients = tmp_path / "clients.pem"
    clients.write_bytes(old.path.read_bytes())
    server = authority.tls("server", ca=clients)
    by_old, by_new = (ChannelSecurity(tls=one.tls(f"by-{n}", ca=authority.path)) for n, one in enumerate((old, new)))
    async with draft_server(tell_name, security=ServerSecurity(tls=server)) as (_, port):
        await ask(port, by_old)
        await refusal(port, by_new)
        clients.write_bytes(new.path.read_bytes())
        await ask(port, by_new)
        await refusal(port, by_old)


async def test_a_clients_certificates_change_without_a_restart(tmp_path: Path) -> None:
    """The server takes a new authority while it restarts; the client's channel is the same before and after."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(old.path.read_bytes())
    mine = old.tls("client", common_name="of-old", ca=trusted)
    server = ServerSecurity(tls=old.tls("server", ca=trusted))
    async with (
        draft_server(tell_name, security=server) as (first, port),
        channel_to(port, ChannelSecurity(tls=mine)) as channel,
    ):
        stub = DraftServiceStub(channel)
        request = pb.ProposeTokensRequest()
        assert (await stub.ProposeTokens(request, timeout=TIMEOUT)).instance_id == "of-old"
        trusted.write_bytes(new.path.read_bytes())
        new.issue("client", common_name="of-new")
        new.issue("server")
        assert (await stub.ProposeTokens(request, timeout=TIMEOUT)).instance_id == "of-old"
        await first.stop()
        async with draft_server(tell_name, port=port, security=server):
            answer = await stub.ProposeTokens(request, timeout=TIMEOUT, wait_for_ready=True)
            assert answer.instance_id == "of-new"


def metrics_config(security: ServerSecurity) -> ServerConfig:
    return ServerConfig(port=0, metrics_port=0, security=security)


async def test_metrics_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.tls("server", ca=authority.path), authority.tls("client", ca=authority.path)
    async with metrics_endpoint(service_registry("draft"), metrics_config(ServerSecurity(tls=server))) as port:
        url = f"https://127.0.0.1:{port}/metrics"
        async with httpx.AsyncClient(verify=http_client_context(client)) as scraper:
            assert (await scraper.get(url)).status_code == 200
        with pytest.raises(httpx.TransportError):
            async with httpx.AsyncClient(verify=http_client_context(TlsFiles(ca=client.ca))) as scraper:
                await scraper.get(url)
        with pytest.raises(httpx.TransportError):
            async with httpx.AsyncClient() as scraper:
                await scraper.get(url.replace("https", "http"))


async def test_metrics_with_a_new_certificate_and_new_authorities(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    clients = tmp_path / "clients.pem"
    clients.write_bytes(old.path.read_bytes())
    by_old, by_new = old.tls("by-old", ca=old.path), new.tls("by-new", ca=new.path)

    async def scrape(url: str, context: ssl.SSLContext) -> int:
        async with httpx.AsyncClient(verify=context) as scraper:
            return (await scraper.get(url)).status_code

    security = ServerSecurity(tls=old.tls("server", ca=clients))
    async with metrics_endpoint(service_registry("draft"), metrics_config(security)) as port:
        url = f"https://127.0.0.1:{port}/metrics"
        assert await scrape(url, http_client_context(by_old)) == 200
        clients.write_bytes(new.path.read_bytes())
        new.issue("server")
        assert await scrape(url, http_client_context(by_new)) == 200
        old_certificate = TlsFiles(cert=by_old.cert, key=by_old.key, ca=by_new.ca)
        with pytest.raises(httpx.TransportError):
            await scrape(url, http_client_context(old_certificate))


@pytest.mark.parametrize("broken", ["cert", "key", "ca"])
async def test_files_that_cannot_be_used_are_named_at_the_start(broken: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good = authority.tls("server", ca=authority.path)
    for content, problem in ((None, "cannot be read"), (b"no PEM", "PEM")):
        path = tmp_path / f"{broken}-{content is None}"
        if content is not None:
            path.write_bytes(content)
        files = TlsFiles(**{**{name: getattr(good, name) for name in ("cert", "key", "ca")}, broken: str(path)})
        server = ServiceServer(ServerConfig(port=0, security=ServerSecurity(tls=files)))
        try:
            with pytest.raises(InvalidFieldError, match=rf"^tls_(cert|{broken}): .*{path}.*{problem}"):
                await server.start()
        finally:
            await server.stop()


async def test_a_command_that_does_not_trust_the_server_says_so_in_one_line(tmp_path: Path) -> None:
    """As a process, since gRPC writes to standard error by itself."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    async with draft_server(security=ServerSecurity(tls=authority.tls("server"))) as (_, port):
        command = [sys.executable, "-m", "command", "health", "--address", f"127.0.0.1:{port}"]
        process = await asyncio.create_subprocess_exec(
            *command, "--tls-ca", str(stranger.path), stderr=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        async with asyncio.timeout(60):
            _, errors = await process.communicate()
    problem = "TLS: the server's certificate has expired, or no trusted authority issued it"
    assert errors.decode() == f"specpair: 127.0.0.1:{port} does not answer: UNAVAILABLE; {problem}\n"


async def tell_certificate(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers with the name in the certificate of its client."""
    body = scope["state"][CERTIFICATE_NAME].encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def test_http_knows_clients_by_their_certificates(tmp_path: Path) -> None:
    """On the loop that services run on, whose TLS is not that of asyncio."""
    authority = Authority(tmp_path)
    server_files = authority.tls("server", ca=authority.path)
    named = authority.tls("named", "a.example", common_name="alice", ca=authority.path)
    unnamed = authority.tls("unnamed", "b.example", ca=authority.path)

    async def names() -> list[str]:
        listener = listen("127.0.0.1", 0, "--http-port")
        config = uvicorn.Config(
            tell_certificate, lifespan="off", log_config=None, **connection_options(server_files, 8)
        )
        server = QuietServer(config)
        serving = asyncio.create_task(server.serve([listener]))
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        told = []
        for files in (named, unnamed):
            async with httpx.AsyncClient(verify=http_client_context(files)) as client:
                told.append((await client.get(url)).text)
        server.should_exit = True
        await serving
        return told

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(names()) == ["alice", "b.example"]


async def test_a_distant_service_is_reached_at_once(tmp_path: Path) -> None:
    """Its handshake takes longer than gRPC would give it by the pause between attempts."""
    authority = Authority(tmp_path)
    async with (
        draft_server(tell_name, security=ServerSecurity(tls=authority.tls("server"))) as (_, port),
        fault_proxy(f"127.0.0.1:{port}") as proxy,
    ):
        proxy.delay(0.15)
        assert await ask(int(proxy.address.rpartition(":")[2]), trusting(authority)) == ""

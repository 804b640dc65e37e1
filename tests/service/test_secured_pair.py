"""A whole pair behind TLS and tokens: gRPC, HTTP and the command line; and that no secret is ever written down."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import httpx
import pytest
from openai import AsyncOpenAI, AuthenticationError, DefaultAsyncHttpxClient
from typer.testing import CliRunner, Result

from command.main import app
from draft_service.config import DraftConfig
from specpair.options import Drafter
from specpair.security.credentials import http_client_context
from specpair.security.settings import PLAIN, ChannelSecurity, ServerSecurity, TlsFiles
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.service.certificates import Authority
from tests.service.rpc_servers import channel_to
from tests.services import PairSecurity, RunningPair, engine_config, running_pair
from tests.tiny_models import make_model

CLIENT_TOKEN = "a-client-of-the-coordinator"
SERVICE_TOKEN = "the-coordinator-as-a-client"
TIMEOUT = 60.0
COMPLETION = {"prompt": [1, 2, 3], "max_tokens": 3, "temperature": 0}


@dataclass
class Secured:
    """A pair with everything switched on."""

    pair: RunningPair
    authority: Authority
    client: TlsFiles
    folder: Path

    def http(self, token: str | None = CLIENT_TOKEN) -> httpx.AsyncClient:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        url = f"https://{self.pair.http_address}"
        return httpx.AsyncClient(base_url=url, verify=http_client_context(self.client), headers=headers, timeout=30)

    def openai(self, token: str) -> AsyncOpenAI:
        client = DefaultAsyncHttpxClient(verify=http_client_context(self.client))
        return AsyncOpenAI(base_url=f"https://{self.pair.http_address}/v1", api_key=token, http_client=client)

    async def specpair(self, *arguments: str, token: str | None = CLIENT_TOKEN, is_trusting: bool = True) -> Result:
        """The command, with its flags for getting in."""
        tls = self.client
        flags = ["--tls-ca", tls.ca, "--tls-cert", tls.cert, "--tls-key", tls.key] if is_trusting else []
        environment = {"SPECPAIR_TOKEN": token, "COLUMNS": "200"}
        return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *flags], env=environment)


@asynccontextmanager
async def secured_pair(folder: Path) -> AsyncIterator[Secured]:
    authority = Authority(folder)
    tokens = {name: folder / name for name in ("clients", "services", "mine")}
    tokens["clients"].write_text(f"alice:{CLIENT_TOKEN}\n")
    tokens["services"].write_text(f"coordinator:{SERVICE_TOKEN}\n")
    tokens["mine"].write_text(f"{SERVICE_TOKEN}\n")
    server, client = (authority.tls(name, ca=authority.path) for name in ("server", "client"))
    security = PairSecurity(
        models=ServerSecurity(tls=server, tokens_file=str(tokens["services"])),
        peers=ChannelSecurity(tls=client, token_file=str(tokens["mine"])),
        coordinator=ServerSecurity(tls=server, tokens_file=str(tokens["clients"])),
        clients=ChannelSecurity(tls=client, token=CLIENT_TOKEN),
    )
    target = engine_config(make_model(folder / "target"))
    async with running_pair(target, DraftConfig(drafter=Drafter.NGRAM), security=security) as pair:
        yield Secured(pair, authority, client, folder)


async def test_everything_works_for_those_who_may(tmp_path: Path) -> None:
    async with secured_pair(tmp_path) as secured:
        pair = secured.pair
        generated = await pair.generate([1, 2, 3, 1, 2, 3], 8, temperature=0, num_speculative_tokens=3)
        assert len(generated.token_ids) == 8 and generated.summary.speculation.draft_round_count > 0
        async with secured.http() as client:
            answer = await client.post("/v1/completions", json=COMPLETION)
            assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 3
            named = await client.get("/v1/models", headers={"host": "api.example.org"})
            assert named.status_code == 200, "under TLS the certificate says whose name it is"
        async with secured.openai(CLIENT_TOKEN) as openai:
            assert [model.object async for model in openai.models.list()] == ["model"]


async def test_strangers_over_http_get_401_as_openai_words_it(tmp_path: Path) -> None:
    async with secured_pair(tmp_path) as secured:
        for token in (None, SERVICE_TOKEN):
            async with secured.http(token) as client:
                answers = [
                    await client.post("/v1/completions", json=COMPLETION),
                    await client.post("/v1/chat/completions", content=b"no json"),
                    await client.get("/v1/models"),
                    await client.get("/v1/nothing"),
                    await client.get("/openapi.json"),
                    await client.get("/metrics"),
                    await client.get("/v1/../v1/models"),
                    await client.get("//v1/models"),
                ]
                assert [answer.status_code for answer in answers] == [401] * len(answers)
                error = answers[0].json()["error"]
                assert (error["code"], error["param"]) == ("invalid_api_key", None)
                assert answers[0].headers["www-authenticate"] == "Bearer" and answers[0].headers["x-request-id"]
                opens = [await client.get(path) for path in ("/health", "/", "/main.mjs")]
                assert [answer.status_code for answer in opens] == [200, 200, 200]
        async with secured.openai("sk-wrong") as openai:
            with pytest.raises(AuthenticationError):
                await openai.models.list()


async def test_strangers_over_grpc_reach_no_service(tmp_path: Path) -> None:
    async with secured_pair(tmp_path) as secured:
        strangers = {
            PLAIN: grpc.StatusCode.UNAVAILABLE,
            ChannelSecurity(tls=TlsFiles(ca=secured.client.ca), token=CLIENT_TOKEN): grpc.StatusCode.UNAVAILABLE,
            ChannelSecurity(tls=secured.client): grpc.StatusCode.UNAUTHENTICATED,
            ChannelSecurity(tls=secured.client, token="x" * 32): grpc.StatusCode.UNAUTHENTICATED,
        }
        assert secured.pair.draft is not None
        for address in (secured.pair.address, secured.pair.target.address, secured.pair.draft.address):
            for access, code in strangers.items():
                async with channel_to(int(address.rpartition(":")[2]), access) as channel:
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await CoordinatorServiceStub(channel).GetPairInfo(pb.GetPairInfoRequest(), timeout=TIMEOUT)
                    assert caught.value.code() is code, access


async def test_the_command_line(tmp_path: Path) -> None:
    async with secured_pair(tmp_path) as secured:
        address, url = secured.pair.address, f"https://{secured.pair.http_address}/metrics"
        for arguments in (
            ["info", "--address", address],
            ["health", "--address", address],
            ["top", "--once", "--metrics", url, "--draft-metrics", "none", "--target-metrics", "none"],
        ):
            result = await secured.specpair(*arguments)
            assert result.exit_code == 0, result.output
        for token, problem in ((None, "got no bearer token"), ("x" * 32, "got an unknown bearer token")):
            result = await secured.specpair("info", "--address", address, token=token)
            assert (result.exit_code, result.stdout) == (1, "")
            assert f"the coordinator at {address} {problem}: see --token-file and SPECPAIR_TOKEN" in result.stderr
        result = await secured.specpair("info", "--address", address, is_trusting=False)
        assert result.exit_code == 1 and "perhaps it speaks TLS" in result.stderr
        result = await secured.specpair("top", "--once", "--metrics", url, token=None)
        assert result.exit_code == 1 and result.stderr.endswith(": needs a bearer token: see --token-file\n")
        result = await secured.specpair("top", "--once", "--metrics", url, is_trusting=False)
        assert result.exit_code == 1 and "TLS: CERTIFICATE_VERIFY_FAILED" in result.stderr
        files = ["--tls-cert", str(secured.client.cert), "--tls-key", "missing"]
        result = await secured.specpair("generate", "x", "--address", address, *files, is_trusting=False)
        assert result.exit_code == 2 and "--tls-key: missing cannot be read" in result.stderr


async def test_no_secret_is_logged_or_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With everything that any library logs; what the test's own clients log is none of the services' business."""
    with caplog.at_level(logging.DEBUG):
        async with secured_pair(tmp_path) as secured:
            await secured.pair.generate([1, 2, 3], 4)
            for token in (CLIENT_TOKEN, "x" * 32):
                async with secured.http(token) as client:
                    await client.post("/v1/completions", json=COMPLETION)
                await secured.specpair("info", "--address", secured.pair.address, token=token)
            (tmp_path / "clients").write_text(f"alice:{CLIENT_TOKEN}\nbob:short\n")
            await secured.pair.generate([1, 2, 3], 4)
            assert CLIENT_TOKEN not in repr(secured.pair) and SERVICE_TOKEN not in repr(secured.pair)
            async with secured.http() as client:
                shown = (await client.get("/metrics")).text + (await client.get("/openapi.json")).text
    logged = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert "a changed file is unusable" in logged, "the log was not seen"
    for secret in (CLIENT_TOKEN, SERVICE_TOKEN, "x" * 32, "PRIVATE KEY"):
        assert secret not in logged and secret not in shown

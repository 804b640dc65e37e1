"""Draft and target that do not let the coordinator in: what clients notice, what they are told, what the log says."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import grpc.aio
import httpx
import pytest
from prometheus_client.registry import CollectorRegistry

from coordinator.config import CoordinatorConfig
from coordinator.pair import connect_pair
from coordinator.serving.call import Call
from coordinator.serving.serving import Serving
from draft_service.config import DraftConfig
from specpair.errors import InvalidFieldError, PeerUnavailableError, SpecpairError
from specpair.options import Drafter
from specpair.security.settings import ChannelSecurity, ServerSecurity, TlsFiles
from specpair.server.config import ServerConfig
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.sampling_pb2 import SamplingOptions
from tests.service.certificates import Authority
from tests.services import PairSecurity, engine_config, running_draft, running_pair, running_target
from tests.tiny_models import make_model

TOKEN = "the-coordinator-as-a-client"
OTHER = "a-token-of-somebody-else"
NGRAM = DraftConfig(drafter=Drafter.NGRAM)


@pytest.fixture
def target_folder(tmp_path: Path) -> Path:
    return make_model(tmp_path / "target")


def knowing(path: Path, token: str) -> ServerSecurity:
    path.write_text(f"coordinator:{token}\n")
    return ServerSecurity(tokens_file=str(path))


def config_for(target: str, draft: str | None, security: ChannelSecurity, patience: float = 60.0) -> CoordinatorConfig:
    """`patience` in seconds, for the start and for each answer."""
    return CoordinatorConfig(
        server=ServerConfig(port=0),
        target_addresses=(target,),
        draft_addresses=() if draft is None else (draft,),
        peer_security=security,
        startup_timeout=patience,
        draft_startup_timeout=0.2,
        target_timeout=patience,
        draft_cooldown=0.05,
    )


async def rounds_with_draft(serving: Serving) -> int:
    request = pb.GenerateTokensRequest(
        token_ids=pb.TokenIds(ids=[1, 2, 1, 2, 1, 2]),
        max_tokens=6,
        num_speculative_tokens=2,
        sampling=SamplingOptions(temperature=0),
    )
    async with aclosing(serving.generate(Call(request=request))) as responses:
        *_, last = [response async for response in responses]
    assert last.summary.completion_token_count == 6
    return last.summary.speculation.draft_round_count


async def test_a_draft_that_refuses_costs_its_proposals_alone(
    target_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = ChannelSecurity(token=TOKEN)
    target_security = PairSecurity(models=knowing(tmp_path / "of-target", TOKEN), peers=mine)
    draft_security = PairSecurity(models=knowing(tmp_path / "of-draft", OTHER), peers=ChannelSecurity(token=OTHER))
    async with (
        running_target(engine_config(target_folder), target_security) as target,
        running_draft(NGRAM, draft_security) as draft,
        connect_pair(config_for(target.address, draft.address, mine)) as pair,
    ):
        serving = Serving(pair)
        assert await rounds_with_draft(serving) == 0
        complaints = [record.getMessage() for record in caplog.records if "is not used" in record.getMessage()]
        assert len(complaints) == 1 and "it refuses our token" in complaints[0]
        knowing(tmp_path / "of-draft", TOKEN)
        async with asyncio.timeout(60):
            while not await rounds_with_draft(serving):
                await asyncio.sleep(0.05)


async def test_a_target_that_refuses_is_unavailable_and_tells_nothing(target_folder: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    security = PairSecurity(models=knowing(tokens, TOKEN), peers=ChannelSecurity(token=TOKEN))
    async with running_pair(engine_config(target_folder), security=security, target_timeout=0.5) as pair:
        knowing(tokens, OTHER)
        for generating in (pair.generate([1, 2], 4), pair.generate([1, 2], 4, prompt_logprobs=1)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await generating
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "token" not in (caught.value.details() or "")


async def test_tokens_that_are_replaced_cost_a_running_request_nothing(target_folder: Path, tmp_path: Path) -> None:
    """Draft and target end the open streams of the old one; the coordinator comes back with the new one."""
    tokens, mine = tmp_path / "tokens", tmp_path / "mine"
    mine.write_text(TOKEN)
    security = PairSecurity(models=knowing(tokens, TOKEN), peers=ChannelSecurity(token_file=str(mine)))
    options = {"temperature": 0, "num_speculative_tokens": 2, "ignore_eos": True}
    prompt = [1, 2, 1, 2, 1, 2]
    async with running_pair(engine_config(target_folder), NGRAM, security=security, draft_cooldown=0.05) as pair:
        expected = (await pair.generate(prompt, 300, **options)).token_ids
        generating = asyncio.create_task(pair.generate(prompt, 300, **options))
        async with asyncio.timeout(20):
            while not len(pair.target.host.sequences):
                await asyncio.sleep(0.001)
        mine.write_text(OTHER)
        tokens.write_text(f"coordinator:{OTHER}\n")
        assert (await generating).token_ids == expected
        assert ended_streams(pair.target.registry) == 1, "the stream went on under the old token"
        await pair.check_clean()


def ended_streams(registry: CollectorRegistry) -> float:
    """Hot streams of a target that ended since their token counted no more."""
    labels = {
        "grpc_type": "bidi_stream",
        "grpc_service": "specpair.v1.TargetService",
        "grpc_method": "StreamVerifications",
        "grpc_code": "Unauthenticated",
    }
    return registry.get_sample_value("grpc_server_handled_total", labels) or 0.0


async def test_a_lost_target_is_told_without_its_address(target_folder: Path) -> None:
    async with running_pair(engine_config(target_folder), target_timeout=0.5) as pair:
        await pair.target.stop()
        said: list[str] = []
        for options in ({}, {"prompt_logprobs": 1}, {"n": 2}):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await pair.generate([1, 2], 4, **options)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            said.append(f"{caught.value.details()} {caught.value.trailing_metadata()}")
        async with httpx.AsyncClient(base_url=f"http://{pair.http_address}", timeout=30) as client:
            async for answer in answers(client):
                assert answer.status_code == 503
                said.append(answer.text)
    port = pair.target.address.rpartition(":")[2]
    assert [words for words in said if port in words or "127.0.0.1" in words] == []


async def answers(client: httpx.AsyncClient) -> AsyncIterator[httpx.Response]:
    for more in ({}, {"stream": True}, {"prompt_logprobs": 1}):
        yield await client.post("/v1/completions", json={"prompt": [1, 2], "max_tokens": 4, **more})


async def test_a_mistake_in_tls_is_named_while_the_start_waits(
    target_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    right = ChannelSecurity(tls=TlsFiles(ca=str(authority.path)))
    security = PairSecurity(models=ServerSecurity(tls=authority.tls("server")), peers=right)
    async with running_target(engine_config(target_folder), security) as target:
        mistakes = {
            ChannelSecurity(tls=TlsFiles(ca=str(stranger.path))): "no trusted authority issued it",
            ChannelSecurity(): "perhaps it speaks TLS",
        }
        for wrong, words in mistakes.items():
            caplog.clear()
            with caplog.at_level(logging.WARNING), pytest.raises(PeerUnavailableError):
                async with connect_pair(config_for(target.address, None, wrong, patience=2.0)):
                    pass
            assert words in caplog.text and target.address in caplog.text
        async with connect_pair(config_for(target.address, None, right)) as pair:
            assert await rounds_with_draft(Serving(pair)) == 0


async def test_files_for_the_way_to_peers_are_checked_at_once(tmp_path: Path) -> None:
    for security in (
        ChannelSecurity(tls=TlsFiles(ca=str(tmp_path / "missing"))),
        ChannelSecurity(token_file=str(tmp_path / "missing")),
    ):
        with pytest.raises(InvalidFieldError, match="missing cannot be read"):
            async with connect_pair(config_for("127.0.0.1:1", None, security)):
                pass


def test_names_of_several_hosts_want_a_name_in_their_certificates() -> None:
    tls = TlsFiles(ca="a")
    with pytest.raises(SpecpairError, match="peer_tls_name: is missing"):
        config_for("dns:targets:50052", None, ChannelSecurity(tls=tls))
    config_for("dns:targets:50052", None, ChannelSecurity(tls=tls, server_name="targets"))
    config_for("targets:50052", None, ChannelSecurity(tls=tls))

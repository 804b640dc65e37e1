"""Places per client: who has taken theirs is refused, whichever way they ask, and nobody else is."""

import asyncio
from pathlib import Path

import grpc.aio
import httpx
import pytest

from specpair.security.settings import ChannelSecurity, ServerSecurity
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from specpair.v1.sampling_pb2 import SamplingOptions
from tests.service.rpc_servers import channel_to
from tests.services import PairSecurity, engine_config, running_pair
from tests.tiny_models import make_model

TOKENS = {"alice": "alice-has-this-token", "bob": "bob-has-another-token"}


def request(max_tokens: int) -> pb.GenerateTokensRequest:
    prompt = pb.TokenIds(ids=[1, 2, 3])
    return pb.GenerateTokensRequest(token_ids=prompt, max_tokens=max_tokens, sampling=SamplingOptions(temperature=0))


async def test_one_client_cannot_take_the_places_of_another(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{name}:{token}\n" for name, token in TOKENS.items()))
    security = PairSecurity(
        coordinator=ServerSecurity(tokens_file=str(tokens)), clients=ChannelSecurity(token=TOKENS["alice"])
    )
    target = engine_config(make_model(tmp_path / "target", max_position_embeddings=8192), num_blocks=4096)
    async with running_pair(target, security=security, max_requests_per_client=1) as pair:
        first = pair.coordinator.GenerateTokens(request(8000))
        await first.read()  # she has her place, for as long as 8,000 tokens take
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(_all(pair.coordinator.GenerateTokens(request(2))), 60)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert [await _http(pair.http_address, name) for name in ("alice", "bob")] == [429, 200]
        async with channel_to(int(pair.address.split(":")[1]), ChannelSecurity(token=TOKENS["bob"])) as channel:
            await asyncio.wait_for(_all(CoordinatorServiceStub(channel).GenerateTokens(request(2))), 60)
        first.cancel()
        async with asyncio.timeout(60):
            while await _http(pair.http_address, "alice") != 200:
                await asyncio.sleep(0.05)


async def _all(call: grpc.aio.UnaryStreamCall[pb.GenerateTokensRequest, pb.GenerateTokensResponse]) -> None:
    async for _ in call:
        pass


async def _http(address: str, name: str) -> int:
    """The status of a short completion for this client."""
    headers = {"authorization": f"Bearer {TOKENS[name]}"}
    async with httpx.AsyncClient(base_url=f"http://{address}", headers=headers, timeout=30) as client:
        body = {"prompt": [1, 2, 3], "max_tokens": 2, "temperature": 0}
        return (await client.post("/v1/completions", json=body)).status_code

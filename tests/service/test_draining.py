"""A coordinator that is told to stop: health turns at once, who runs may finish, the rest is told to come again."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specpair.client.channel import connect
from specpair.errors import ShuttingDownError
from specpair.rpc.status import error_from_rpc
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.http_service import http_client
from tests.services import engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model

PROMPT = [5, 17, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "target", seed=5, max_position_embeddings=2048)


def serving(folder: Path, grace_seconds: float, **options: Any) -> Any:
    return running_pair(engine_config(folder), grace_seconds=grace_seconds, max_requests=2, **options)


def message(max_tokens: int) -> pb.GenerateTokensRequest:
    return pb.GenerateTokensRequest(token_ids={"ids": PROMPT}, max_tokens=max_tokens, sampling={"temperature": 0})


async def tokens_of(call: Any) -> list[int]:
    return [token.id async for response in call for token in response.tokens]


async def refusal_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await tokens_of(call)
    return caught.value


async def test_who_runs_finishes_and_who_comes_is_refused(folder: Path) -> None:
    count = 300
    async with serving(folder, grace_seconds=600) as pair, connect(pair.address) as channel, http_client(pair) as http:
        stub: Any = CoordinatorServiceStub(channel)
        health: Any = health_pb2_grpc.HealthStub(channel)
        running = [asyncio.create_task(tokens_of(stub.GenerateTokens(message(count)))) for _ in range(2)]
        while len(pair.target.host.sequences) < 2:
            await asyncio.sleep(0.01)
        waiting = stub.GenerateTokens(message(5))
        async with asyncio.timeout(60):
            while "specpair_num_requests_waiting 1.0" not in (await http.get("/metrics")).text:
                await asyncio.sleep(0.01)
        stopping = asyncio.create_task(pair.stop())
        assert isinstance(error_from_rpc(await refusal_of(waiting)), ShuttingDownError)
        assert (
            await health.Check(health_pb2.HealthCheckRequest())
        ).status == health_pb2.HealthCheckResponse.NOT_SERVING
        refused = await refusal_of(stub.GenerateTokens(message(5)))
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        assert isinstance(error_from_rpc(refused), ShuttingDownError)
        for answer in (
            await http.get("/health"),
            await http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 2}),
        ):
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
        assert not stopping.done(), "what was asked meanwhile was asked while others ran"
        expected = generate_greedily(load_plain(folder), PROMPT, count)
        assert await asyncio.gather(*running) == [expected, expected]
        await asyncio.wait_for(stopping, 60)
        await pair.check_clean()


async def test_what_outlasts_the_grace_time_ends_behind_its_tokens(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(folder, grace_seconds=0.1) as pair, connect(pair.address) as channel, http_client(pair) as http:
        stub: Any = CoordinatorServiceStub(channel)
        call = stub.GenerateTokens(message(1500))
        tokens: list[int] = []
        streamed = asyncio.create_task(
            http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 1500, "logprobs": 0, "stream": True})
        )
        while len(pair.target.host.sequences) < 2:
            await asyncio.sleep(0.01)
        stopping = asyncio.create_task(pair.stop())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for response in call:
                tokens += [token.id for token in response.tokens]
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert isinstance(error_from_rpc(caught.value), ShuttingDownError)
        assert tokens and tokens == generate_greedily(load_plain(folder), PROMPT, len(tokens))
        text = (await streamed).text
        begun = [record for record in caplog.records if record.getMessage().startswith("stopping: running requests")]
        assert [vars(record)["requests"] for record in begun] == [2]
        assert '"code":"shutting_down"' in text and text.endswith("data: [DONE]\n\n")
        await asyncio.wait_for(stopping, 60)
        await pair.check_clean()


async def test_a_watcher_of_the_health_holds_nothing_up(folder: Path) -> None:
    async with serving(folder, grace_seconds=600) as pair, connect(pair.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await asyncio.wait_for(pair.stop(), 60)

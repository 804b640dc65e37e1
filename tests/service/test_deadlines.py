"""A client's deadline, over real gRPC: it hears in time, and the work for it ends."""

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from coordinator.deadline import Deadline
from coordinator.service import CoordinatorServicer
from coordinator.serving.call import Call
from specpair.client.channel import connect
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer
from specpair.v1.coordinator_service_pb2 import GenerateTokensRequest, GenerateTokensResponse, TokenIds
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub, add_CoordinatorServiceServicer_to_server
from tests.service.test_logprobs import VOCABULARY
from tests.service.test_scoring import BUDGET, TEXT, stopping_before, wanted
from tests.services import engine_config, running_pair
from tests.tiny_models import make_model

PATIENCE = 2.0


@pytest.mark.parametrize("scores", [False, True])
async def test_nothing_is_computed_for_a_client_whose_time_is_over(scores: bool, tmp_path: Path) -> None:
    """A forward pass that hangs keeps the text from being read; what is left of it is not read afterwards."""
    config = engine_config(make_model(tmp_path, vocab_size=VOCABULARY), max_num_batched_tokens=BUDGET)
    async with running_pair(config) as pair:
        fed = pair.target.host.engine.statistics.batch_tokens
        extra: dict[str, Any] = {"prompt_logprobs": 1} if scores else {}
        request = GenerateTokensRequest(token_ids=TokenIds(ids=TEXT), max_tokens=5, **extra)
        with stopping_before(pair.target, 2 * BUDGET):
            start = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in pair.coordinator.GenerateTokens(request, timeout=PATIENCE):
                    pass
            assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            assert time.monotonic() - start < PATIENCE + 1.0
            async with asyncio.timeout(20):
                while wanted(pair.target) or (not scores and len(pair.target.host.sequences)):
                    await asyncio.sleep(0.01)
        await pair.target.check_integrity()
        assert fed.total <= 3 * BUDGET, "the pass that was under way is the last one"
        if not scores:  # an unfinished score is kept, for the same call again
            await pair.check_clean()


@pytest.mark.parametrize("seconds", [14.25, 99.9, 100.0, 250.5, 1001.0, 10_001.0])
async def test_a_request_ends_before_its_client_gives_up_however_grpc_rounds_its_time(seconds: float) -> None:
    """gRPC has few digits for the time that a client gives, and rounds it up: 100 s may arrive as 101 s."""
    deadlines: list[Deadline] = []

    async def generate(call: Call) -> AsyncGenerator[GenerateTokensResponse, None]:
        deadlines.append(call.deadline)
        yield GenerateTokensResponse()

    server = ServiceServer(ServerConfig(port=0, grace_seconds=0.0))
    add_CoordinatorServiceServicer_to_server(CoordinatorServicer(SimpleNamespace(generate=generate)), server)  # type: ignore[arg-type]
    port = await server.start()
    await server.set_ready(True)
    async with connect(f"127.0.0.1:{port}") as channel:
        stub: Any = CoordinatorServiceStub(channel)
        given_up = Deadline.after(seconds)
        assert [response async for response in stub.GenerateTokens(GenerateTokensRequest(), timeout=seconds)]
    await server.stop()
    assert 0.1 < given_up.at - deadlines[0].at < 0.3 + 0.01 * seconds

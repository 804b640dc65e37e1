"""A model service that is told to stop: calls under way are answered, later ones are sent elsewhere at once."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specpair.client.channel import VerificationCaller, connect, verification_caller
from specpair.errors import PeerUnavailableError, ShuttingDownError
from specpair.models.batch import Batch
from specpair.rpc.status import error_from_rpc
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1 import target_service_pb2
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub
from target_service.serve import open_target
from tests.services import engine_config
from tests.tiny_models import generate_greedily, load_plain, make_model

PROMPTS = {"a": [1, 2, 3], "b": [4, 5], "c": [6]}
TIMEOUT = 60.0


class Draining:
    """A target whose next pass waits, and its clients."""

    def __init__(self, server: ServiceServer, runner: Any, channel: grpc.aio.Channel):
        self.server = server
        self.sequences: Any = SequenceServiceStub(channel)
        self.health: Any = health_pb2_grpc.HealthStub(channel)
        self.caller: VerificationCaller = verification_caller(channel)
        self.reached, self.released = threading.Event(), threading.Event()
        self._forward = runner.forward
        runner.forward = self._wait

    def _wait(self, batch: Batch) -> torch.Tensor:
        self.reached.set()
        self.released.wait(TIMEOUT)
        return self._forward(batch)

    async def verify(self, name: str) -> int:
        request = target_service_pb2.VerifyProposalRequest(sequence_id=name, base_length=len(PROMPTS[name]))
        return (await self.caller.call(request, TIMEOUT)).next_token_id

    async def open(self, name: str, token_ids: list[int]) -> None:
        request = pb.OpenSequenceRequest(sequence_id=name, token_ids=token_ids, sampling={"temperature": 0, "seed": 1})
        await self.sequences.OpenSequence(request)


@asynccontextmanager
async def draining_target(folder: Path, grace_seconds: float) -> AsyncIterator[Draining]:
    server = ServiceServer(ServerConfig(port=0, grace_seconds=grace_seconds))
    port = await server.start()
    try:
        async with open_target(server, engine_config(folder)) as verifier, connect(f"127.0.0.1:{port}") as channel:
            await server.set_ready(True)
            draining = Draining(server, verifier.engine._turns.runner, channel)
            try:
                for name, prompt in PROMPTS.items():
                    await draining.open(name, prompt)
                yield draining
            finally:
                draining.released.set()
                await draining.caller.close()
                await server.stop()
    finally:
        await server.stop()


async def test_calls_under_way_are_answered_and_later_ones_refused_at_once(tmp_path: Path) -> None:
    folder = make_model(tmp_path, seed=1)
    plain = load_plain(folder)
    async with draining_target(folder, grace_seconds=600) as target:
        running = {name: asyncio.create_task(target.verify(name)) for name in "ab"}
        assert await asyncio.to_thread(target.reached.wait, TIMEOUT)
        stopping = asyncio.create_task(target.server.stop())
        await asyncio.sleep(0.05)
        status = await target.health.Check(health_pb2.HealthCheckRequest())
        assert status.status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(ShuttingDownError):  # on the stream that the others came by
            await target.verify("c")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await target.open("d", [7])
        assert isinstance(error_from_rpc(caught.value), ShuttingDownError)
        assert not stopping.done() and not any(call.done() for call in running.values())
        target.released.set()
        async with asyncio.timeout(TIMEOUT):
            for name, call in running.items():
                assert await call == generate_greedily(plain, PROMPTS[name], 1)[0]
            await stopping


async def test_what_outlasts_the_grace_time_is_told_to_go_elsewhere(tmp_path: Path) -> None:
    async with draining_target(make_model(tmp_path, seed=1), grace_seconds=0.2) as target:
        running = asyncio.create_task(target.verify("a"))
        assert await asyncio.to_thread(target.reached.wait, TIMEOUT)
        stopping = asyncio.create_task(target.server.stop())
        async with asyncio.timeout(TIMEOUT):
            with pytest.raises((PeerUnavailableError, ShuttingDownError)):
                await running
            await stopping


async def test_an_idle_stream_holds_nothing_up(tmp_path: Path) -> None:
    async with draining_target(make_model(tmp_path, seed=1), grace_seconds=600) as target:
        target.released.set()
        await target.verify("a")
        async with asyncio.timeout(TIMEOUT):
            await target.server.stop()

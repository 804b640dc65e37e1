"""Sequences and streams per client of a draft: who has theirs is refused for a while, and nobody else is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_status import rpc_status
from prometheus_client.registry import CollectorRegistry

from draft_service.config import DraftConfig
from draft_service.serve import open_draft
from specpair.options import Drafter
from specpair.security.settings import ChannelSecurity, ServerSecurity
from specpair.server.config import ServerConfig
from specpair.server.metrics_registry import service_registry
from specpair.server.server import ServiceServer
from specpair.v1 import draft_service_pb2 as draft_pb
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub
from tests.service.rpc_servers import channel_to
from tests.services import engine_config, running_pair
from tests.tiny_models import make_model

TOKENS = {"alice": "a" * 20, "bob": "b" * 20}
TIMEOUT = 10.0
REASONS = ("client_limit", "full")


class Client:
    """One of a draft, by its name."""

    def __init__(self, channel: grpc.aio.Channel):
        self._sequences: Any = SequenceServiceStub(channel)
        self._hot: Any = DraftServiceStub(channel)
        self._health: Any = HealthStub(channel)

    async def open(self, sequence_id: str) -> None:
        request = pb.OpenSequenceRequest(sequence_id=sequence_id, token_ids=[1], vocab_size=50, sampling={"seed": 1})
        await self._sequences.OpenSequence(request, timeout=TIMEOUT)

    async def close(self, sequence_id: str) -> None:
        await self._sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id=sequence_id), timeout=TIMEOUT)

    async def info(self) -> pb.GetModelInfoResponse:
        return await self._sequences.GetModelInfo(pb.GetModelInfoRequest(), timeout=TIMEOUT)

    async def stream(self) -> Any:
        """A hot stream that has answered a call, if only that there is no such sequence."""
        stream = self._hot.StreamProposals()
        call = draft_pb.ProposalCall(call_id=1, request=draft_pb.ProposeTokensRequest(sequence_id="none"))
        await stream.write(draft_pb.StreamProposalsRequest(calls=[call]))
        assert (await stream.read()).answers[0].HasField("error")
        return stream

    async def watch(self) -> Any:
        """A watch of the health that has said something."""
        watching = self._health.Watch(HealthCheckRequest())
        await watching.read()
        return watching


@asynccontextmanager
async def quotas(folder: Path) -> AsyncIterator[tuple[Client, Client, CollectorRegistry]]:
    """A draft where a client may have two sequences of three, and two streams."""
    tokens = folder / "tokens"
    tokens.write_text("".join(f"{name}:{token}\n" for name, token in TOKENS.items()))
    security = ServerSecurity(tokens_file=str(tokens))
    registry = service_registry("draft")
    config = ServerConfig(port=0, grace_seconds=0.0, security=security, max_streams_per_client=2)
    server = ServiceServer(config, registry)
    port = await server.start()
    draft = DraftConfig(drafter=Drafter.NGRAM, max_num_seqs=3, max_num_seqs_per_client=2)
    try:
        async with open_draft(server, draft, registry):
            await server.set_ready(True)
            async with (
                channel_to(port, ChannelSecurity(token=TOKENS["alice"])) as hers,
                channel_to(port, ChannelSecurity(token=TOKENS["bob"])) as his,
            ):
                yield Client(hers), Client(his), registry
            await server.stop()
    finally:
        await server.stop()


def check_refusal(error: grpc.aio.AioRpcError, words: str) -> None:
    """RESOURCE_EXHAUSTED, with a time after which another try may succeed."""
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and words in (error.details() or "")
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    retry = error_details_pb2.RetryInfo()
    assert status is not None and any(detail.Unpack(retry) for detail in status.details)
    assert retry.retry_delay.ToTimedelta().total_seconds() > 0


async def test_sequences_of_one_client_are_bounded(tmp_path: Path) -> None:
    async with quotas(tmp_path) as (alice, bob, registry):
        await alice.open("a")
        await alice.open("b")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await alice.open("c")
        check_refusal(caught.value, "2 sequences of this client are open")
        await bob.open("a")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await bob.open("b")
        check_refusal(caught.value, "3 sequences are open")
        assert [(await client.info()).max_num_seqs for client in (alice, bob)] == [2, 2]
        await alice.close("a")
        await alice.open("c")
        refused = [registry.get_sample_value("specpair_sequence_refusals_total", {"reason": r}) for r in REASONS]
        assert refused == [1, 1]


async def test_streams_of_one_client_are_bounded(tmp_path: Path) -> None:
    """Whichever streams they are; calls without one go on."""
    async with quotas(tmp_path) as (alice, bob, registry):
        first, _ = await alice.stream(), await alice.watch()
        for another in (alice.stream, alice.watch):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await another()
            check_refusal(caught.value, "2 streams of this client are open")
        await alice.info()
        await bob.stream()
        assert registry.get_sample_value("specpair_streams_open") == 3
        assert registry.get_sample_value("specpair_stream_refusals_total") == 2
        await first.done_writing()
        assert await first.code() is grpc.StatusCode.OK
        await alice.stream()


async def test_a_coordinator_admits_what_it_may_have_open(tmp_path: Path) -> None:
    """A second request waits instead of being refused by the target."""
    target = engine_config(make_model(tmp_path / "target"), max_num_seqs=8, max_num_seqs_per_client=1)
    async with running_pair(target) as pair:
        outputs = [pair.generate([1, 2, 3], 50, temperature=0, ignore_eos=True) for _ in range(4)]
        assert len({tuple(generated.token_ids) for generated in await asyncio.gather(*outputs)}) == 1
        refused = pair.target.registry.get_sample_value("specpair_sequence_refusals_total", {"reason": "client_limit"})
        assert refused == 0
        await pair.check_clean()

"""A sequence belongs to the client that opened it, on unary calls and on streams alike."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from draft_service.config import DraftConfig
from draft_service.serve import open_draft
from specpair.client.channel import connect
from specpair.options import Drafter
from specpair.security.settings import ServerSecurity
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer
from specpair.v1 import draft_service_pb2 as draft_pb
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceStub
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub

TOKENS = {"alice": "a" * 20, "bob": "b" * 20}


class Client(NamedTuple):
    """Stubs of the services, whose type is not told, and who calls."""

    sequences: Any
    hot: Any
    name: str

    @property
    def token(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {TOKENS[self.name]}"),)

    async def open(self, token_ids: list[int]) -> None:
        request = pb.OpenSequenceRequest(sequence_id="s", token_ids=token_ids, vocab_size=50, sampling={"seed": 1})
        await self.sequences.OpenSequence(request, metadata=self.token)

    async def propose(self, step: int, base_length: int) -> Any:
        return await self.hot.ProposeTokens(proposal(step, base_length), metadata=self.token)

    async def propose_on_stream(self, step: int, base_length: int) -> Any:
        stream = self.hot.StreamProposals(metadata=self.token)
        call = draft_pb.ProposalCall(call_id=1, request=proposal(step, base_length))
        await stream.write(draft_pb.StreamProposalsRequest(calls=[call]))
        await stream.done_writing()
        return (await stream.read()).answers[0]


def proposal(step: int, base_length: int) -> draft_pb.ProposeTokensRequest:
    return draft_pb.ProposeTokensRequest(sequence_id="s", step=step, base_length=base_length, num_speculative_tokens=2)


@asynccontextmanager
async def two_clients(folder: Path) -> AsyncIterator[tuple[Client, Client]]:
    """Of a draft that wants tokens; it proposes by repetition, without a model."""
    file = folder / "tokens"
    file.write_text("".join(f"{name}:{token}\n" for name, token in TOKENS.items()))
    file.chmod(0o600)
    security = ServerSecurity(tokens_file=str(file))
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0.0, security=security))
    port = await server.start()
    try:
        async with open_draft(server, DraftConfig(drafter=Drafter.NGRAM)), connect(f"127.0.0.1:{port}") as channel:
            await server.set_ready(True)
            stubs = SequenceServiceStub(channel), DraftServiceStub(channel)
            yield Client(*stubs, "alice"), Client(*stubs, "bob")
            await server.stop()
    finally:
        await server.stop()


async def test_nobody_reaches_the_sequence_of_another(tmp_path: Path) -> None:
    async with two_clients(tmp_path) as (alice, bob):
        await alice.open([1, 2, 1, 2])
        rollback = pb.RollbackSequenceRequest(sequence_id="s", length=1)
        fork = pb.ForkSequenceRequest(sequence_id="s", forked_sequence_id="copy")
        for call in (
            bob.propose(0, 4),
            bob.sequences.RollbackSequence(rollback, metadata=bob.token),
            bob.sequences.ForkSequence(fork, metadata=bob.token),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        answer = await bob.propose_on_stream(0, 4)
        assert answer.error.code == grpc.StatusCode.NOT_FOUND.value[0]
        await bob.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id="s"), metadata=bob.token)
        assert list((await alice.propose(0, 4)).proposal.token_ids) == [1, 2]


async def test_the_same_id_is_another_sequence(tmp_path: Path) -> None:
    """And nothing tells that there is one already."""
    async with two_clients(tmp_path) as (alice, bob):
        await alice.open([1, 2, 1, 2])
        await bob.open([7, 8, 9, 7, 8])
        assert list((await bob.propose(0, 5)).proposal.token_ids) == [9, 7]
        answer = await alice.propose_on_stream(0, 4)
        assert list(answer.response.proposal.token_ids) == [1, 2]

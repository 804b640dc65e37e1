"""A draft service without a model, in this process or as one of its own, for the tests of specpair.rpc."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc.aio

from specpair.client.channel import ProposalCaller, connect, proposal_caller
from specpair.errors import PeerUnavailableError
from specpair.security.settings import PLAIN, UNPROTECTED, ChannelSecurity, ServerSecurity
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer
from specpair.server.streams import serve_calls
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1.draft_service_pb2_grpc import DraftServiceServicer, add_DraftServiceServicer_to_server

TIMEOUT = 60.0

Propose = Callable[[pb.ProposeTokensRequest], Awaitable[pb.ProposeTokensResponse]]


class FakeDraft(DraftServiceServicer):
    """Answers both forms of the hot call with one function."""

    def __init__(self, propose: Propose):
        self._propose = propose

    async def ProposeTokens(
        self, request: pb.ProposeTokensRequest, context: grpc.aio.ServicerContext
    ) -> pb.ProposeTokensResponse:
        return await self._propose(request)

    async def StreamProposals(
        self, request_iterator: AsyncIterator[pb.StreamProposalsRequest], context: grpc.aio.ServicerContext
    ) -> None:
        await serve_calls(request_iterator, context, self._propose, pb.StreamProposalsResponse)


async def echo(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
    """Answers at once, with the step of the request."""
    return pb.ProposeTokensResponse(instance_id=request.sequence_id, step=request.step)


class Gates:
    """Calls that wait until the test lets them go, by step."""

    def __init__(self) -> None:
        self._gates: dict[int, asyncio.Event] = {}
        self.cancelled_steps: list[int] = []
        self.begun = asyncio.Condition()
        self.begun_steps: set[int] = set()

    async def propose(self, request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        async with self.begun:
            self.begun_steps.add(request.step)
            self.begun.notify_all()
        try:
            await self._gate(request.step).wait()
        except asyncio.CancelledError:
            self.cancelled_steps.append(request.step)
            raise
        return await echo(request)

    def open(self, step: int) -> None:
        self._gate(step).set()

    async def wait_begun(self, *steps: int) -> None:
        async with self.begun:
            await self.begun.wait_for(lambda: self.begun_steps.issuperset(steps))

    def _gate(self, step: int) -> asyncio.Event:
        return self._gates.setdefault(step, asyncio.Event())


@asynccontextmanager
async def draft_server(
    propose: Propose = echo, *, port: int = 0, grace_seconds: float = 0.0, security: ServerSecurity = UNPROTECTED
) -> AsyncIterator[tuple[ServiceServer, int]]:
    """A server that is ready, and its port."""
    server = ServiceServer(ServerConfig(port=port, grace_seconds=grace_seconds, security=security))
    add_DraftServiceServicer_to_server(FakeDraft(propose), server)
    bound_port = await server.start()
    try:
        await server.set_ready(True)
        yield server, bound_port
    finally:
        await server.stop()


@asynccontextmanager
async def channel_to(port: int, security: ChannelSecurity = PLAIN) -> AsyncIterator[grpc.aio.Channel]:
    channel = connect(f"127.0.0.1:{port}", security)
    try:
        yield channel
    finally:
        await channel.close()


async def answer_after_recovery(caller: ProposalCaller, request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
    """Calls until the channel has found the peer again; gRPC waits a moment between its attempts."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await caller.call(request, 60)
            except PeerUnavailableError:
                await asyncio.sleep(0.05)


def request(step: int) -> pb.ProposeTokensRequest:
    return pb.ProposeTokensRequest(sequence_id="s", step=step)


def calls(*steps: int) -> pb.StreamProposalsRequest:
    """Calls in one message, with their steps as ids."""
    return pb.StreamProposalsRequest(calls=[pb.ProposalCall(call_id=step, request=request(step)) for step in steps])


@asynccontextmanager
async def caller_to(propose: Propose = echo) -> AsyncIterator[ProposalCaller]:
    async with draft_server(propose) as (_, port), caller_on(port) as caller:
        yield caller


@asynccontextmanager
async def caller_on(port: int) -> AsyncIterator[ProposalCaller]:
    async with channel_to(port) as channel:
        caller = proposal_caller(channel)
        try:
            yield caller
        finally:
            await caller.close()

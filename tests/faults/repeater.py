"""A gRPC server between a coordinator and a model service that repeats calls: at once, later, and out of order.

What the service answers to a repetition is compared with its first answer, and never passed on.
"""

import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import grpc
import grpc.aio

from specpair.client.channel import connect
from specpair.v1 import draft_service_pb2 as draft_pb2
from specpair.v1 import target_service_pb2 as target_pb2

HOT = {
    "/specpair.v1.TargetService/StreamVerifications": (
        target_pb2.StreamVerificationsRequest,
        target_pb2.StreamVerificationsResponse,
    ),
    "/specpair.v1.DraftService/StreamProposals": (
        draft_pb2.StreamProposalsRequest,
        draft_pb2.StreamProposalsResponse,
    ),
}
STREAMS = ("/specpair.v1.SequenceService/GetTokenizer", "/grpc.health.v1.Health/Watch")
REMEMBERED = 64
"""Calls of a stream that may be repeated later."""


class Repeater(grpc.GenericRpcHandler):
    """Forwards every call, some of them more than once."""

    def __init__(self, channel: grpc.aio.Channel, seed: int):
        self._channel = channel
        self._random = Random(f"{seed} repeater")
        self.repeated: Counter[str] = Counter()
        """Repetitions, by method."""
        self.outcomes: Counter[str] = Counter()
        """What was answered to repeated hot calls: `same`, `other`, or the reason of an error."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = handler_call_details.method
        if method in HOT:
            return grpc.stream_stream_rpc_method_handler(partial(self._relay_hot, method))
        if method in STREAMS:
            return grpc.unary_stream_rpc_method_handler(partial(self._relay_stream, method))
        return grpc.unary_unary_rpc_method_handler(partial(self._relay, method))

    async def _relay(self, method: str, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """A unary call; some are made twice, and the second answer is the one that is believed."""
        call = self._channel.unary_unary(method)
        try:
            answer = await call(data, timeout=context.time_remaining())
            if self._random.random() < 0.5:
                self.repeated[method] += 1
                answer = await call(data, timeout=context.time_remaining())
            return answer
        except grpc.aio.AioRpcError as error:
            await _abort(context, error)
            raise

    async def _relay_stream(self, method: str, data: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        try:
            async for message in self._channel.unary_stream(method)(data, timeout=context.time_remaining()):
                yield message
        except grpc.aio.AioRpcError as error:
            await _abort(context, error)

    async def _relay_hot(
        self, method: str, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        stream = HotStream(self, method, self._random)
        upstream = self._channel.stream_stream(method)(stream.requests(messages))
        try:
            async for message in upstream:
                if answers := stream.answers(message):
                    yield answers
        except grpc.aio.AioRpcError as error:
            await _abort(context, error)
        finally:
            upstream.cancel()


class HotStream:
    """The calls of one hot stream, under ids of the repeater's own."""

    def __init__(self, repeater: Repeater, method: str, random: Random):
        self._repeater = repeater
        self._method = method
        self._request_class, self._response_class = HOT[method]
        self._random = random
        self._ids = itertools.count(1)
        self._callers: dict[int, int] = {}
        """The caller's id of each call that it waits for."""
        self._repetitions: dict[int, tuple[str, int]] = {}
        self._answered: dict[tuple[str, int], bytes] = {}
        """Answers by sequence and step."""
        self._calls: dict[int, tuple[str, int]] = {}
        self._past: deque[Any] = deque(maxlen=REMEMBERED)

    async def requests(self, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What the service gets: the caller's calls in another order, and repetitions among them."""
        async for data in messages:
            calls = list(self._request_class.FromString(data).calls)
            out = [self._first(call) for call in calls]
            out += [self._again(call) for call in calls if self._random.random() < 0.3]
            if self._past and self._random.random() < 0.3:
                out.append(self._again(self._random.choice(self._past)))
            self._past += calls
            self._random.shuffle(out)
            message = self._request_class()
            message.calls.extend(out)
            yield message.SerializeToString()

    def answers(self, data: bytes) -> bytes:
        """What the caller gets: one answer to each of its calls."""
        message = self._response_class()
        for answer in self._response_class.FromString(data).answers:
            key = self._calls.pop(answer.call_id)
            if answer.call_id in self._repetitions:
                self._judge(key, answer)
                continue
            if answer.WhichOneof("outcome") == "response":
                self._note(key, answer)
            answer.call_id = self._callers.pop(answer.call_id)
            message.answers.append(answer)
        return message.SerializeToString()

    def _first(self, call: Any) -> Any:
        copy = self._copy(call)
        self._callers[copy.call_id] = call.call_id
        return copy

    def _again(self, call: Any) -> Any:
        self._repeater.repeated[self._method] += 1
        copy = self._copy(call)
        self._repetitions[copy.call_id] = self._calls[copy.call_id]
        return copy

    def _copy(self, call: Any) -> Any:
        copy = type(call)()
        copy.CopyFrom(call)
        copy.call_id = next(self._ids)
        self._calls[copy.call_id] = (call.request.sequence_id, call.request.step)
        return copy

    def _judge(self, key: tuple[str, int], answer: Any) -> None:
        if answer.WhichOneof("outcome") == "error":
            self._repeater.outcomes[str(answer.error.reason)] += 1
        else:
            self._note(key, answer)

    def _note(self, key: tuple[str, int], answer: Any) -> None:
        """All answers to a call and its repetitions have to equal the first one."""
        said = content(answer.response)
        if key in self._answered:
            self._repeater.outcomes["same" if self._answered[key] == said else "other"] += 1
        self._answered.setdefault(key, said)


def content(response: Any) -> bytes:
    """What a response says, but for the time it took."""
    if isinstance(response, draft_pb2.ProposeTokensResponse):
        return response.proposal.SerializeToString(deterministic=True)
    said = target_pb2.VerifyProposalResponse(
        accepted_count=response.accepted_count, next_token_id=response.next_token_id, length=response.length
    )
    return said.SerializeToString(deterministic=True)


@asynccontextmanager
async def repeater_before(address: str, seed: int) -> AsyncIterator[tuple[Repeater, str]]:
    """A repeater and where it listens."""
    async with connect(address) as channel:
        repeater = Repeater(channel, seed)
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
            ("grpc.http2.max_ping_strikes", 0),
        ]
        server = grpc.aio.server(handlers=[repeater], options=options)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield repeater, f"127.0.0.1:{port}"
        finally:
            await server.stop(None)


async def _abort(context: grpc.aio.ServicerContext, error: grpc.aio.AioRpcError) -> None:
    """Ends a call as the service ended it."""
    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))

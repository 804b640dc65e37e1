"""The client's side: channels that detect a dead peer soon, and calls multiplexed over one stream."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from specpair.client.secured_channel import SecuredChannel
from specpair.errors import InvalidFieldError, PeerUnavailableError, ShuttingDownError, SpecpairError
from specpair.rpc.decoding import strict_answers
from specpair.rpc.sizes import MAX_MESSAGE_BYTES, MAX_TOGETHER_BYTES, MAX_TOGETHER_CALLS
from specpair.rpc.status import TRANSPORT_CODE, error_from_rpc, error_from_stream
from specpair.security.settings import PLAIN, ChannelSecurity
from specpair.tracing import trace_context
from specpair.v1 import draft_service_pb2 as draft_pb2
from specpair.v1 import target_service_pb2 as target_pb2

PING_INTERVAL_MS = 1000
PING_TIMEOUT_MS = 3000
"""A hanging peer is detected after at most the interval plus the timeout: within a draft's deadline of 5 s. On an
overloaded machine a live peer may need a second to answer."""
RECONNECT_MS = 100
TLS_CONNECT_MS = 2000
"""A TLS handshake takes several round trips, on a busy machine longer than the 100 ms for plain text."""
MAX_RECONNECT_MS = 1000
TOGETHER = 8
"""Answers of one message that are given out at once. Their callers make their next calls, which are sent before more
are given out: so the peer works on the first calls while this process is still busy with the other answers."""

logger = logging.getLogger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")


def connect(address: str, security: ChannelSecurity = PLAIN) -> grpc.aio.Channel:
    """A channel to a service. Call it inside the running loop; nothing is sent before the first call.

    Raises InvalidFieldError for unusable certificates and tokens.
    """
    if security == PLAIN:
        return grpc.aio.insecure_channel(address, options=channel_options())

    def make_channel(credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
        if credentials is None:
            return grpc.aio.insecure_channel(address, options=channel_options())
        options = [*channel_options(connect_ms=TLS_CONNECT_MS), *name_options(security.server_name)]
        return grpc.aio.secure_channel(address, credentials, options=options)

    return SecuredChannel(make_channel, security)


def name_options(server_name: str | None) -> list[tuple[str, str]]:
    """Channel options that expect this name in the server's certificate, instead of the host's."""
    return [] if server_name is None else [("grpc.ssl_target_name_override", server_name)]


def channel_options(connect_ms: int = RECONNECT_MS) -> list[tuple[str, int]]:
    """Of a channel that detects a dead peer soon. `connect_ms` limits one attempt to connect; later attempts may take
    as long as the back-off before the next."""
    return [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        # Only the HTTP/2 ping timeout detects a stopped peer in time; keepalive alone took 24 s.
        ("grpc.keepalive_time_ms", PING_INTERVAL_MS),
        ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        # gRPC's default back-off grows to two minutes: too long for a peer that restarts in seconds.
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS),
        ("grpc.min_reconnect_backoff_ms", connect_ms),  # despite its name it bounds the attempt
        ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_MS),
        ("grpc.use_local_subchannel_pool", 1),
    ]


class StreamCaller(Generic[Request, Response]):
    """Calls over one bidirectional stream, each answered when it is ready.

    The first call opens the stream; if it breaks, the next call opens a new one. Raises only SpecpairErrors.
    """

    def __init__(
        self,
        open_stream: Callable[[], grpc.aio.StreamStreamCall],
        make_message: Callable[[], Any],
        take_pushed: Callable[[Any], None] | None = None,
    ):
        """`make_message` makes an empty message of the stream. `take_pushed` gets every message before its answers are
        given out, for what it has beside them; it must not raise."""
        self._open_stream = open_stream
        self._make_message = make_message
        self._take_pushed = take_pushed
        self._call_ids = itertools.count(1)
        self._stream: _OpenStream | None = None
        self._is_closed = False

    async def call(self, request: Request, timeout: float) -> Response:  # noqa: ASYNC109 (each call has its own)
        """Returns the answer to one request. `timeout` in seconds covers the whole call.

        Raises the error that the peer raised, or PeerUnavailableError if the stream breaks or the timeout passes.
        """
        call_id = next(self._call_ids)
        message = self._make_message()
        message.calls.add(call_id=call_id, request=request, trace_context=trace_context())
        data = _serialize(message)
        return await self._live_stream().exchange(call_id, data, timeout)

    def tell(self, request: Request) -> None:
        """Sends a call whose answer nobody needs: none comes, or it is dropped.

        Raises ShuttingDownError once closed, and InvalidFieldError for a request that is too large.
        """
        message = self._make_message()
        message.calls.add(request=request, trace_context=trace_context(), is_unanswered=True)
        self._live_stream().send(None, _serialize(message))

    async def close(self) -> None:
        """Ends the stream; calls under way and later ones raise ShuttingDownError."""
        self._is_closed = True
        if self._stream is not None:
            await self._stream.close()

    def _live_stream(self) -> "_OpenStream":
        if self._is_closed:
            raise ShuttingDownError
        if self._stream is None or self._stream.is_broken:
            try:
                self._stream = _OpenStream(self._open_stream(), self._take_pushed)
            except grpc.aio.UsageError:  # the channel is closed
                raise ShuttingDownError from None
        return self._stream


class _OpenStream:
    """One stream from its opening to its end. gRPC takes one write at a time, so a separate task writes all calls since
    the last write, in one message.

    Cancelling a write or read breaks the whole stream (grpc.aio cancels the call). So a call that times out only stops
    waiting: its request may still be sent, and a late answer is dropped.
    """

    def __init__(self, stream: grpc.aio.StreamStreamCall, take_pushed: Callable[[Any], None] | None):
        self._stream = stream
        self._take_pushed = take_pushed
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._outbox: deque[tuple[int | None, bytes]] = deque()
        """Messages of one call each, with its id; None if it gets no answer."""
        self._has_calls = asyncio.Event()
        self.is_broken = False
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]

    async def exchange(self, call_id: int, data: bytes, seconds: float) -> Any:
        """Returns the answer to the call; `data` is a message with this call alone. Raises PeerUnavailableError if it
        does not come within `seconds`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting[call_id] = future
        self.send(call_id, data)
        timer = loop.call_later(seconds, _expire, future, seconds)  # asyncio.timeout would cost five times as much
        try:
            return await future
        finally:
            timer.cancel()
            self._waiting.pop(call_id, None)

    def send(self, call_id: int | None, data: bytes) -> None:
        self._outbox.append((call_id, data))
        self._has_calls.set()

    async def close(self) -> None:
        self._fail(ShuttingDownError)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._stream.cancel()

    async def _write(self) -> None:
        try:
            while True:
                await self._has_calls.wait()
                self._has_calls.clear()
                while data := self._take_together():
                    await self._stream.write(data)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reader sees the same error, with its reason
        except Exception:
            logger.exception("writing to a stream failed")
            self._stream.cancel()  # the reader sees it and fails the waiting calls

    def _take_together(self) -> bytes:
        """One message of the calls that still wait. Messages of repeated fields are merged by joining their bytes."""
        parts: list[bytes] = []
        size = 0
        while self._outbox and len(parts) < MAX_TOGETHER_CALLS:
            call_id, data = self._outbox[0]
            size += len(data)
            if parts and size > MAX_TOGETHER_BYTES:
                break
            self._outbox.popleft()
            if call_id is None or call_id in self._waiting:
                parts.append(data)
        return b"".join(parts)

    async def _read(self) -> None:
        reason, metadata = "the stream ended", {}
        try:
            async for message in self._stream:
                if self._take_pushed is not None:
                    self._take_pushed(message)
                for number, answer in enumerate(message.answers, start=1):
                    self._settle(answer)
                    if number % TOGETHER == 0:
                        await asyncio.sleep(0)
        except grpc.aio.AioRpcError as error:
            reason, metadata = f"the stream broke: {error_from_rpc(error).message}", {TRANSPORT_CODE: error.code().name}
        except Exception:
            logger.exception("reading a stream failed")
            reason = "the stream broke"
        finally:  # closing the channel cancels the call, which ends here with CancelledError
            self._fail(lambda: PeerUnavailableError(reason, **metadata))
            self._tasks[0].cancel()
            self._stream.cancel()  # in case the stream itself has not ended

    def _settle(self, answer: Any) -> None:
        future = self._waiting.get(answer.call_id)
        if future is None or future.done():
            return
        outcome = answer.WhichOneof("outcome")
        if outcome == "response":
            future.set_result(answer.response)
        elif outcome == "error":
            future.set_exception(error_from_stream(answer.error))
        else:
            future.set_exception(SpecpairError("the peer sent an answer without content"))

    def _fail(self, make_error: Callable[[], SpecpairError]) -> None:
        """Marks the stream as broken and fails the waiting calls."""
        self.is_broken = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(make_error())


def _expire(future: asyncio.Future[Any], seconds: float) -> None:
    """Fails a call that was not answered in time."""
    if not future.done():
        future.set_exception(PeerUnavailableError(f"the peer did not answer within {seconds:g} s", timeout=seconds))


ProposalCaller = StreamCaller[draft_pb2.ProposeTokensRequest, draft_pb2.ProposeTokensResponse]
VerificationCaller = StreamCaller[target_pb2.VerifyProposalRequest, target_pb2.VerifyProposalResponse]


def proposal_caller(
    channel: grpc.aio.Channel, take_block: Callable[[draft_pb2.AheadBlock], None] | None = None
) -> ProposalCaller:
    """Calls of DraftService.ProposeTokens over one stream. `take_block` gets prepared proposals; it must not raise."""

    def take_pushed(message: draft_pb2.StreamProposalsResponse) -> None:
        if take_block is not None:
            for block in message.ahead_blocks:
                take_block(block)

    open_stream = channel.stream_stream(
        "/specpair.v1.DraftService/StreamProposals",
        response_deserializer=strict_answers(draft_pb2.StreamProposalsResponse.FromString),
    )
    return StreamCaller(open_stream, draft_pb2.StreamProposalsRequest, take_pushed)


def verification_caller(channel: grpc.aio.Channel) -> VerificationCaller:
    """Calls of TargetService.VerifyProposal over one stream."""
    open_stream = channel.stream_stream(
        "/specpair.v1.TargetService/StreamVerifications",
        response_deserializer=strict_answers(target_pb2.StreamVerificationsResponse.FromString),
    )
    return StreamCaller(open_stream, target_pb2.StreamVerificationsRequest)


def _serialize(message: Any) -> bytes:
    """Serializes a message and checks its size: a message over the limit would break the stream for all its calls."""
    data: bytes = message.SerializeToString()
    if len(data) > MAX_MESSAGE_BYTES:
        raise InvalidFieldError("request", f"has {len(data)} bytes; at most {MAX_MESSAGE_BYTES} can be sent")
    return data

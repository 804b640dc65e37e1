"""The server's side of a hot stream: many calls over one bidirectional stream, answered as they become ready."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, Protocol, TypeVar

import grpc.aio

from specpair.errors import ShuttingDownError, SpecpairError
from specpair.rpc.decoding import readable
from specpair.rpc.sizes import MAX_MESSAGE_BYTES, MAX_TOGETHER_BYTES, MAX_TOGETHER_CALLS
from specpair.rpc.status import internal_error, stream_error
from specpair.server.pushes import Pushes
from specpair.tracing import continued

MAX_CALLS_PER_STREAM = MAX_TOGETHER_CALLS
"""Most calls of one stream under way at once. At the limit the stream is not read, so the client has to wait."""

MAX_BYTES_PER_STREAM = 2 * MAX_MESSAGE_BYTES
"""Most bytes of requests under way and of unwritten answers. At the limit the stream is not read."""

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = MAX_MESSAGE_BYTES - 1024
"""Largest size of one answer; the rest is for the message around it."""

Request = TypeVar("Request")
Response = TypeVar("Response")
RequestOut = TypeVar("RequestOut", covariant=True)


class ByteBudget:
    """Limits how many bytes are held at once. Runs on the event loop.

    A message larger than the whole budget waits until nothing else is held.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._held = 0
        self._returned = asyncio.Event()

    async def take(self, size: int) -> None:
        """Waits until there is room for `size` bytes, and holds them."""
        while self._held and self._held + size > self._limit:
            self._returned.clear()
            await self._returned.wait()
        self._held += size

    def add(self, size: int) -> None:
        """Holds `size` bytes without waiting, even beyond the limit: they exist already. Others wait instead."""
        self._held += size

    def give_back(self, size: int) -> None:
        assert size <= self._held
        self._held -= size
        self._returned.set()


class Call(Protocol[RequestOut]):
    """A request on the stream, with the id that its answer repeats."""

    @property
    def call_id(self) -> int: ...
    @property
    def request(self) -> RequestOut: ...
    @property
    def trace_context(self) -> str: ...


class Calls(Protocol[RequestOut]):
    """The calls of one message."""

    @property
    def calls(self) -> Collection[Call[RequestOut]]: ...
    def ByteSize(self) -> int: ...


async def serve_calls(
    request_iterator: AsyncIterator[Calls[Request]],
    context: grpc.aio.ServicerContext,
    handle: Callable[[Request], Awaitable[Response]],
    make_message: Callable[[], Any],
    pushes: Pushes | None = None,
    take: Callable[[Any], bool] | None = None,
) -> None:
    """Answers the calls of one stream: `await serve_calls(requests, context, self._propose, StreamProposalsResponse)`.

    Each call runs in its own task. Answers that are ready together share one message, because a message costs both
    sides more than the work for a call. A SpecpairError of `handle` becomes the answer of that call alone; so does an
    unexpected error, without its text. Calls under way are still answered when the client ends its side, and when a
    message cannot be read (its error then ends the stream). When the stream breaks, they are cancelled. While the
    server drains, calls that arrive while others are under way are refused at once. `make_message` makes a message
    without `answers`. What handlers add to `pushes` is sent with the answers, or alone. `take` gets the calls that need
    no answer, and returns whether it takes one: it then gets none, and costs no task.
    """
    requests = drainable(request_iterator)
    calls = _Calls(context, handle, make_message, requests, Pushes("answers") if pushes is None else pushes)
    unreadable: SpecpairError | None = None
    async with asyncio.TaskGroup() as group, calls.pushing(group):
        try:
            async for message in requests:
                if not message.calls:
                    continue
                parcel = _Parcel(message.ByteSize(), len(message.calls), calls.held)
                await calls.held.take(parcel.size)
                has_begun = False
                for call in message.calls:
                    if take is not None and may_be_taken(call):
                        if has_begun:
                            await asyncio.sleep(0)  # what it depends on may be a call before it in this message
                            has_begun = False
                        if calls.taken(call, take):
                            parcel.call_done()
                            continue
                    await calls.places.acquire()
                    group.create_task(calls.answer(call, parcel))
                    has_begun = True
        except SpecpairError as error:
            unreadable = error  # raised here it would cancel a write, and gRPC would never send the status
    if unreadable is not None:
        try:
            raise unreadable
        finally:
            del unreadable  # else the error refers to itself, and keeps all it came through until that is collected


def may_be_taken(call: Any) -> bool:
    """Whether the caller needs no answer. Only hot streams that can be told something have such calls."""
    return call.is_unanswered


class _Parcel:
    """A received message. Its bytes are held until all its calls are done: each call keeps the whole message alive."""

    def __init__(self, size: int, call_count: int, held: ByteBudget):
        self.size = size
        self._call_count = call_count
        self._held = held

    def call_done(self) -> None:
        self._call_count -= 1
        if not self._call_count:
            self._held.give_back(self.size)


class _Calls(Generic[Request, Response]):
    """The calls under way on one stream."""

    def __init__(
        self,
        context: grpc.aio.ServicerContext,
        handle: Callable[[Request], Awaitable[Response]],
        make_message: Callable[[], Any],
        requests: "DrainableRequests[Calls[Request]]",
        pushes: Pushes,
    ):
        self.places = asyncio.Semaphore(MAX_CALLS_PER_STREAM)
        """A place is given back when the answer is written, so a client that does not read has to wait."""
        self.held = ByteBudget(MAX_BYTES_PER_STREAM)
        """Bytes of requests under way and of answers that wait to be written."""
        self._context = context
        self._handle = handle
        self._make_message = make_message
        self._requests = requests
        self._pushes = pushes
        self._ready: deque[tuple[int, str, Any]] = deque()
        """Answers to write: call id, field name and value."""
        self._is_writing = False  # gRPC takes one write at a time

    async def answer(self, call: Call[Request], parcel: _Parcel) -> None:
        call_id, (name, value) = call.call_id, await self._outcome(call)
        del call  # free it now: this task may go on to write the answers of others
        parcel.call_done()
        self.held.add(value.ByteSize())
        self._ready.append((call_id, name, value))
        if not self._is_writing:
            self._is_writing = True
            await self._write()

    def taken(self, call: Call[Request], take: Callable[[Any], bool]) -> bool:
        """Whether `take` takes the call; while the server drains it is refused as any other."""
        if self._requests.is_draining:
            return False
        try:
            with continued(call.trace_context):
                return take(call)
        except Exception:
            logger.exception("a call that gets no answer failed")
            return True

    @asynccontextmanager
    async def pushing(self, group: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Inside the context, what is pushed is written."""

        def begin() -> None:
            if not self._is_writing:
                self._is_writing = True
                group.create_task(self._write())

        self._pushes.open(begin)
        try:
            yield
        finally:
            self._pushes.close()

    async def _outcome(self, call: Call[Request]) -> tuple[str, Any]:
        """The outcome of a call: a field name of the answer, and its value."""
        if self._requests.is_draining:
            return "error", stream_error(ShuttingDownError())
        try:
            with self._requests.held_open(), continued(call.trace_context):
                response: Any = await self._handle(call.request)
                if response.ByteSize() > MAX_ANSWER_BYTES:  # sending it would break the stream for all its calls
                    return "error", stream_error(too_large(response.ByteSize()))
                return "response", response
        except SpecpairError as error:
            return "error", stream_error(error)
        except Exception:
            logger.exception("a call on a stream failed")
            return "error", stream_error(internal_error())

    async def _write(self) -> None:
        """Writes the answers that are ready, what is pushed, and what is added meanwhile. One at a time."""
        if self._requests.has_calls:
            await asyncio.sleep(0)  # answers of one forward pass become ready in the same turn of the loop
        while self._ready or self._pushes:
            message, size = self._take_together()
            moved = self._pushes.fill(message, MAX_TOGETHER_BYTES - size, is_alone=not message.answers)
            if not message.answers and not moved:
                continue  # what waited is of no use any more
            await self._context.write(message)
            self.held.give_back(size)
            for _ in message.answers:
                self.places.release()
        self._is_writing = False

    def _take_together(self) -> tuple[Any, int]:
        """A message with the answers that are ready, and their size in bytes."""
        message, size = self._make_message(), 0
        while self._ready and len(message.answers) < MAX_TOGETHER_CALLS:
            call_id, name, value = self._ready[0]
            own_size = value.ByteSize()
            if message.answers and size + own_size > MAX_TOGETHER_BYTES:
                break
            self._ready.popleft()
            size += own_size
            message.answers.add(call_id=call_id, **{name: value})
        return message, size


def too_large(size: int) -> SpecpairError:
    return SpecpairError(f"the answer has {size} bytes; at most {MAX_ANSWER_BYTES} can be sent")


class DrainableRequests(Generic[Request]):
    """The requests of a stream. The iteration ends early when the server stops.

    Otherwise a stream that its client keeps open would delay every shutdown by the whole grace time. The iteration goes
    on while calls of the stream are under way, so that new calls are refused instead of left without an answer.
    """

    def __init__(self, request_iterator: AsyncIterator[Request]):
        self._request_iterator = request_iterator
        self.is_draining = False
        self._is_over = False
        self._under_way = 0
        self._reader: asyncio.Task[Any] | None = None
        self._check: Callable[[], None] = lambda: None

    def check_each(self, check: Callable[[], None]) -> None:
        """Calls `check` after each request; the iteration raises what `check` raises."""
        self._check = check

    def __aiter__(self) -> "DrainableRequests[Request]":
        return self

    async def __anext__(self) -> Request:
        if self._is_over:
            raise StopAsyncIteration
        reader = self._reader = asyncio.current_task()
        try:
            request = readable(await self._request_iterator.__anext__())
        except asyncio.CancelledError:
            if not self._is_over or reader is None:
                raise
            reader.uncancel()
            raise StopAsyncIteration from None
        finally:
            self._reader = None
        self._check()
        return request

    @property
    def has_calls(self) -> bool:
        """Whether calls of the stream are under way."""
        return self._under_way > 0

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """Marks a call of the stream as under way inside the context."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if self.is_draining and not self._under_way:
                self._end()

    def drain(self) -> None:
        """Ends the iteration as soon as no call is under way; interrupts a wait for the next request."""
        self.is_draining = True
        if not self._under_way:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        if self._reader is not None:
            self._reader.cancel()


def drainable(request_iterator: AsyncIterator[Request]) -> DrainableRequests[Request]:
    """The requests, wrapped in DrainableRequests unless an interceptor did so already."""
    if isinstance(request_iterator, DrainableRequests):
        return request_iterator
    return DrainableRequests(request_iterator)

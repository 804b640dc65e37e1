"""gRPC calls with raw bytes, and their results."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from tests.hostile.methods import Method
from tests.hostile.verdicts import WRITE_FAILED

PATIENCE = 120.0
"""Seconds; whatever takes longer is stuck. The longest output that may be asked for took 30 in company."""
_OF_THE_CLIENT = "Internal error from Core"
_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The result of a call."""

    verdict: str
    text: str = ""
    """All that a refusal says: message, metadata and details."""
    messages: list[bytes] = field(default_factory=list)
    seconds: float = 0.0


class Wire:
    """Channels to all services."""

    def __init__(self, channels: dict[str, grpc.aio.Channel], addresses: dict[str, str]):
        self._channels = channels
        self.addresses = addresses

    async def call(
        self,
        method: Method,
        requests: Sequence[bytes],
        *,
        metadata: Any = None,
        patience: float = PATIENCE,
        shape: str | None = None,
        path: str | None = None,
        leave_after: float | None = None,
    ) -> Reply:
        """Sends the requests and reads to the end; `shape` and `path` may be other than the method's own. The caller
        leaves after some seconds, if it is to."""
        make = getattr(self._channels[method.endpoint], shape or method.shape)
        caller, kind = make(path or method.path), shape or method.shape
        begin = time.monotonic()
        messages: list[bytes] = []
        call = caller(
            requests[0] if kind.startswith("unary") else _given(requests), metadata=metadata, timeout=patience
        )
        try:
            async with _leaving(call, leave_after):
                await _read(call, kind.endswith("unary"), messages)
            reply = Reply(verdict="OK/", messages=messages, seconds=time.monotonic() - begin)
        except grpc.aio.AioRpcError as error:
            reply = refusal(error, messages, time.monotonic() - begin)
        except asyncio.CancelledError:
            if not call.cancelled() or (task := asyncio.current_task()) is None or task.cancelling():
                raise
            reply = Reply(verdict="CANCELLED/", messages=messages)
        return reply


@asynccontextmanager
async def _leaving(call: Any, seconds: float | None) -> AsyncIterator[None]:
    """Cancels the call when it is time to."""
    timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, call.cancel)
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


async def _given(requests: Iterable[bytes]) -> AsyncIterator[bytes]:
    for request in requests:
        yield request


async def _read(call: Any, has_one_answer: bool, messages: list[bytes]) -> None:
    if has_one_answer:
        messages.append(await call)
        return
    async for message in call:
        messages.append(message)


def refusal(error: grpc.aio.AioRpcError, messages: list[bytes], seconds: float) -> Reply:
    """A status with all that comes with it."""
    reason, texts = "", [error.details() or ""]
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            texts.append(f"{key}: {value!r}")
            continue
        status = status_pb2.Status.FromString(value if isinstance(value, bytes) else value.encode())
        texts.append(str(status.message))
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                reason = info.reason if info.domain == "specpair" else f"of {info.domain}"
                texts += [f"{name}={value}" for name, value in info.metadata.items()]
    if error.details() == _OF_THE_CLIENT:
        return Reply(verdict=WRITE_FAILED, messages=messages, seconds=seconds)
    return Reply(verdict=f"{error.code().name}/{reason}", text="\n".join(texts), messages=messages, seconds=seconds)


@asynccontextmanager
async def open_wire(addresses: dict[str, str]) -> AsyncIterator[Wire]:
    """Channels to coordinator, target and draft."""
    async with AsyncExitStack() as stack:
        channels = {
            name: await stack.enter_async_context(grpc.aio.insecure_channel(addresses[name], options=_OPTIONS))
            for name in ("coordinator", "target", "draft")
        }
        yield Wire(channels, addresses)

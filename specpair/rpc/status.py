"""Converts errors to gRPC statuses and back, with one table for unary calls and streams.

A status carries a google.rpc.ErrorInfo with the error's reason, so the client raises the same class as the service.
The text of an error that is not in the table never leaves the process.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from specpair import errors
from specpair.errors import SpecpairError
from specpair.v1 import error_reason_pb2, stream_error_pb2

DOMAIN = "specpair"
STATUS_DETAILS_KEY = "grpc-status-details-bin"
REASON_PREFIX = "ERROR_REASON_"
TRANSPORT_CODE = "code"
"""Key in the metadata of an error that comes from gRPC itself, not from the peer."""

# If two classes share a reason, the client raises the first.
STATUS_CODES: dict[type[SpecpairError], grpc.StatusCode] = {
    errors.InvalidFieldError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.PromptTooLongError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidDistributionError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidGrammarError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.SequenceNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.BaseLengthMismatchError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StaleStepError: grpc.StatusCode.ABORTED,
    errors.ConflictingBodyError: grpc.StatusCode.ALREADY_EXISTS,
    errors.LengthNotReachedError: grpc.StatusCode.OUT_OF_RANGE,
    errors.CapacityExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ForwardFailedError: grpc.StatusCode.INTERNAL,
    errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    errors.NotFiniteError: grpc.StatusCode.INTERNAL,
    errors.NotSupportedError: grpc.StatusCode.UNIMPLEMENTED,
    errors.ModelRefusedError: grpc.StatusCode.UNIMPLEMENTED,
    errors.PeerUnavailableError: grpc.StatusCode.UNAVAILABLE,
    errors.StartingError: grpc.StatusCode.UNAVAILABLE,
    errors.ClientStalledError: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.ShuttingDownError: grpc.StatusCode.UNAVAILABLE,
    errors.VocabularyMismatchError: grpc.StatusCode.FAILED_PRECONDITION,
    SpecpairError: grpc.StatusCode.INTERNAL,
}

_CLASSES: dict[str, type[SpecpairError]] = {cls.reason: cls for cls in reversed(STATUS_CODES)}

# Statuses without an ErrorInfo, from gRPC itself or from a proxy.
_TRANSPORT_CLASSES: dict[grpc.StatusCode, type[SpecpairError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.PeerUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.PeerUnavailableError,
    grpc.StatusCode.CANCELLED: errors.PeerUnavailableError,
    grpc.StatusCode.UNKNOWN: errors.PeerUnavailableError,
    grpc.StatusCode.INTERNAL: errors.PeerUnavailableError,
    grpc.StatusCode.ABORTED: errors.PeerUnavailableError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.CapacityExhaustedError,
    grpc.StatusCode.UNIMPLEMENTED: errors.NotSupportedError,
}
MOST_RETRY_SECONDS = 3600.0
MOST_MESSAGE_CHARACTERS = 500
"""Longest text of an error, which may quote what a client sent. It travels in trailers, twice and escaped, and clients
take at most 8 or 16 KiB of those."""


def internal_error() -> SpecpairError:
    """The error that a client sees in place of an unexpected one."""
    return SpecpairError("internal error")


def status_code(error: SpecpairError) -> grpc.StatusCode:
    """The status of the error's class, or of its nearest base in the table."""
    return next(STATUS_CODES[cls] for cls in type(error).__mro__ if cls in STATUS_CODES)


def outward(error: SpecpairError) -> SpecpairError:
    """The error as clients may see it. gRPC's text on a connection to a peer names hosts, so it stays in the log."""
    if TRANSPORT_CODE in error.metadata:
        return _rebuild(type(error), "a service behind this one could not be reached", {})
    if len(error.message) > MOST_MESSAGE_CHARACTERS:
        return _shortened(error)
    return error


def _shortened(error: SpecpairError) -> SpecpairError:
    short = _rebuild(type(error), error.message[: MOST_MESSAGE_CHARACTERS - 3] + "...", {})
    vars(short).update(vars(error) | {"message": short.message})
    return short


def rich_status(error: SpecpairError) -> status_pb2.Status:
    """The status with an ErrorInfo, and a RetryInfo if a retry may succeed."""
    error = outward(error)
    status = status_pb2.Status(code=status_code(error).value[0], message=error.message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)
    _add_detail(status, info)
    if isinstance(error, errors.CapacityExhaustedError):
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromTimedelta(timedelta(seconds=error.retry_after))
        _add_detail(status, retry)
    return status


async def abort(context: grpc.aio.ServicerContext, status: status_pb2.Status) -> NoReturn:
    """Ends a call with a status and its details."""
    # Part of grpc.aio's context, but missing from the published stubs.
    await context.abort_with_status(rpc_status.to_status(status))  # pyright: ignore[reportAttributeAccessIssue]
    raise AssertionError("abort_with_status raises")


def error_from_rpc(error: grpc.aio.AioRpcError) -> SpecpairError:
    """The error of a peer's status: the one that the peer raised, or gRPC's own about the connection."""
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    _read_details(error, info, retry)
    message = error.details() or ""
    if info.domain == DOMAIN and info.reason in _CLASSES:
        known = _rebuild(_CLASSES[info.reason], message, dict(info.metadata))
        if isinstance(known, errors.CapacityExhaustedError) and retry.HasField("retry_delay"):
            known.retry_after = min(max(retry.retry_delay.ToMilliseconds() / 1000, 0.0), MOST_RETRY_SECONDS)
        return known
    code = error.code()
    cls = _TRANSPORT_CLASSES.get(code, SpecpairError)
    return _rebuild(cls, f"the peer answered {code.name}: {message}", {TRANSPORT_CODE: code.name})


@contextmanager
def peer_errors() -> Iterator[None]:
    """Converts gRPC errors of the calls inside the context to SpecpairErrors."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error) from error


def stream_error(error: SpecpairError) -> stream_error_pb2.StreamError:
    """The error as the answer to a call on a stream."""
    error = outward(error)
    return stream_error_pb2.StreamError(
        code=status_code(error).value[0],
        message=error.message,
        reason=REASON_PREFIX + error.reason,
        metadata=error.metadata,
    )


def error_from_stream(error: stream_error_pb2.StreamError) -> SpecpairError:
    """The error that the peer raised; a SpecpairError for an unknown reason."""
    value = error_reason_pb2.DESCRIPTOR.enum_types_by_name["ErrorReason"].values_by_number.get(error.reason)
    reason = value.name.removeprefix(REASON_PREFIX) if value is not None else ""
    return _rebuild(_CLASSES.get(reason, SpecpairError), error.message, dict(error.metadata))


def _rebuild(cls: type[SpecpairError], message: str, metadata: dict[str, str]) -> SpecpairError:
    """An error of the class with the given message; the class's own __init__ would compose another message."""
    error = cls.__new__(cls)
    SpecpairError.__init__(error, message)
    error.metadata = metadata
    return error


def _read_details(error: grpc.aio.AioRpcError, *kinds: Message) -> None:
    """Fills `kinds` from the details of a status; unreadable details are ignored."""
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            with suppress(DecodeError):
                for detail in status_pb2.Status.FromString(value).details:
                    for kind in kinds:
                        detail.Unpack(kind)


def _add_detail(status: status_pb2.Status, detail: Message) -> None:
    status.details.add().Pack(detail)

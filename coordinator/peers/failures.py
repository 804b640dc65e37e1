"""How a call to a model service can fail, in words of our own."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from specpair.errors import (
    BaseLengthMismatchError,
    ConflictingBodyError,
    PeerUnavailableError,
    SequenceNotFoundError,
    ShuttingDownError,
    SpecpairError,
    StaleStepError,
    UnauthenticatedError,
)
from specpair.rpc.status import TRANSPORT_CODE, peer_errors

LOST = (SequenceNotFoundError, BaseLengthMismatchError, StaleStepError, ConflictingBodyError)
"""The peer stands elsewhere than thought: the sequence is opened again from the history."""
AWAY = (PeerUnavailableError, ShuttingDownError)
"""The peer cannot be reached at present."""


@contextmanager
def known_failures() -> Iterator[None]:
    """Turns a peer's errors into ours. One that refuses our token is away: it is no fault of our client.

    So is one whose channel was closed under the call, which grpc.aio tells by cancelling it.
    """
    try:
        with peer_errors():
            yield
    except grpc.aio.UsageError:
        raise ShuttingDownError from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise PeerUnavailableError("the connection was closed") from None
    except UnauthenticatedError as error:
        raise PeerUnavailableError(error.message, **{TRANSPORT_CODE: error.reason}) from error


def is_out_of_time(error: SpecpairError) -> bool:
    """Whether a call only took too long: the peer keeps what it has come to, and the same call goes on there."""
    return "timeout" in error.metadata or error.metadata.get(TRANSPORT_CODE) == grpc.StatusCode.DEADLINE_EXCEEDED.name


def is_refusal(error: SpecpairError) -> bool:
    """Whether the peer answered that it does not know our token."""
    return error.metadata.get(TRANSPORT_CODE) == UnauthenticatedError.reason

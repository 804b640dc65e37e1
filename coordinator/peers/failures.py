"""The ways in which a call to a model service can fail, as SpecpairErrors."""

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
"""The peer's state of the sequence differs from the expected one: the sequence is reopened from the history."""
AWAY = (PeerUnavailableError, ShuttingDownError)
"""The peer cannot be reached at present."""


@contextmanager
def known_failures() -> Iterator[None]:
    """Turns a peer's errors into SpecpairErrors. A peer that refuses our token counts as unavailable: the client is not
    at fault.

    A peer whose channel was closed during the call counts so as well; grpc.aio reports that by cancelling the call.
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
    """Whether a call only timed out: the peer keeps its progress, and a repeated call continues it."""
    return "timeout" in error.metadata or error.metadata.get(TRANSPORT_CODE) == grpc.StatusCode.DEADLINE_EXCEEDED.name


def is_refusal(error: SpecpairError) -> bool:
    """Whether the peer refused our token."""
    return error.metadata.get(TRANSPORT_CODE) == UnauthenticatedError.reason

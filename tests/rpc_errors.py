"""What a refused call carries."""

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status


async def refused(call: Any, code: grpc.StatusCode, reason: str) -> dict[str, str]:
    """The metadata of the ErrorInfo that a refused call carries."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is code, caught.value.details()
    status = rpc_status.from_call(caught.value)  # pyright: ignore[reportArgumentType]
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (reason, "specpair")
    return dict(info.metadata)

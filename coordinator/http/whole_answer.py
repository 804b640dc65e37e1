"""An answer that is sent as a whole."""

from collections.abc import Coroutine
from typing import Any

from fastapi import Request, Response

from coordinator.http.disconnects import ClientGoneError, unless_gone
from coordinator.http.failures import failure_response
from coordinator.http.parameter_names import Names
from coordinator.http.request_counter import CLIENT_GONE


async def whole_answer(request: Request, body: Coroutine[Any, Any, bytes], names: Names) -> Response:
    """The JSON document that `body` makes, or its failure. It is given up if the client goes, or the process stops."""
    try:
        made = await unless_gone(request.receive, request.app.state.front_end.grace_is_over, body)
    except ClientGoneError:
        return Response(status_code=CLIENT_GONE)
    except Exception as error:
        return failure_response(error, names)
    return Response(made, media_type="application/json")

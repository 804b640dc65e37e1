"""Errors as OpenAI's clients expect them: a body that names the parameter, a status that says whether to retry."""

import logging
import math
from typing import Any

import grpc
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from coordinator.http.head_requests import with_head
from coordinator.http.models import UnknownModelError
from coordinator.http.parameter_names import Names, names_at, parameter_name
from coordinator.http.refusals import INVALID_TYPE, INVALID_VALUE, place_name
from specpair.errors import CapacityExhaustedError, SpecpairError
from specpair.rpc.status import internal_error, outward, status_code

STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNIMPLEMENTED: 400,  # the pair lacks a feature that the request needs
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
}
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "internal_server_error",
    503: "service_unavailable_error",
}
CODES = {
    "PROMPT_TOO_LONG": "context_length_exceeded",
    "INVALID_FIELD": INVALID_VALUE,
    "UNAUTHENTICATED": "invalid_api_key",
}
"""OpenAI's codes where it has one; the others are our reasons in lower case."""
VALUE_ERRORS = frozenset(
    {
        *("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number", "int_parsing_size"),
        *("enum", "literal_error", "too_long", "too_short", "string_too_long", "string_too_short"),
        *("string_pattern_mismatch", INVALID_VALUE),
    }
)
"""The types of pydantic's errors, and of our refusals, for a value of the right type outside its limits."""
INVALID_JSON = "invalid_json"
KIND_CODES = {"json_invalid": INVALID_JSON, "missing": "missing_required_parameter"}
NOT_JSON = "the body must be JSON, and the header `content-type: application/json` must say so"
UNREADABLE = "the body cannot be read; send JSON in UTF-8, not compressed, not nested deeply and without long integers"
WHOLE_BODY = {
    "missing": "the body is empty; send a JSON object",
    "model_attributes_type": "the body must be a JSON object",
}
"""By the type of pydantic's error: what is wrong with a body as a whole."""
UNAVAILABLE_RETRY_SECONDS = 1
MOST_OF_A_PATH = 100
"""Characters of it that an error repeats."""

logger = logging.getLogger(__name__)


def error_body(message: str, status: int, *, parameter: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "internal_server_error")
    return {"error": {"message": message, "type": kind, "param": parameter, "code": code}}


def http_status(error: SpecpairError) -> int:
    return STATUSES.get(status_code(error), 500)


def failure_body(error: Exception, names: Names) -> tuple[int, dict[str, Any]]:
    """Status and body. An unexpected error is logged, and its details are not sent."""
    if not isinstance(error, SpecpairError):
        logger.error("a request failed", exc_info=error)
        error = internal_error()
    error = outward(error)
    status = http_status(error)
    message, parameter, other = error.message, error.metadata.get("field"), error.metadata.get("other")
    if other is not None:
        message = message.replace(other, parameter_name(other, names))
    if parameter is not None:
        renamed = parameter_name(parameter, names)
        message = renamed + message.removeprefix(parameter) if message.startswith(parameter) else message
        parameter = renamed.split("[")[0].split(" ")[0].split(".")[0]
    code = CODES.get(error.reason, error.reason.lower())
    return status, error_body(message, status, parameter=parameter, code=code)


def failure_response(error: Exception, names: Names) -> JSONResponse:
    """The whole answer to a request that failed."""
    status, body = failure_body(error, names)
    headers = {"www-authenticate": "Bearer"} if status == 401 else retry_headers(status, error)
    return JSONResponse(body, status, headers=headers)


def retry_headers(status: int, error: Exception | None = None) -> dict[str, str]:
    """The retry-after header, in whole seconds."""
    if status not in (429, 503):
        return {}
    delay = error.retry_after if isinstance(error, CapacityExhaustedError) else UNAVAILABLE_RETRY_SECONDS
    return {"retry-after": str(math.ceil(delay))}


async def handle_failure(request: Request, error: Exception) -> JSONResponse:
    return failure_response(error, names_at(request.url.path))


async def handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answers the framework's errors: unknown paths, wrong methods, bodies that are too large or cannot be read."""
    assert isinstance(error, HTTPException)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if "allow" in headers:
        headers["allow"] = with_head(headers["allow"])
    body = error_body(_problem(request, error, headers.get("allow")), error.status_code)
    if error.status_code == 400:  # FastAPI's for whatever json raises other than an error of JSON's syntax
        body["error"] |= {"message": UNREADABLE, "code": INVALID_JSON}
    if isinstance(error, UnknownModelError):
        body["error"] |= {"param": "model", "code": "model_not_found"}
    return JSONResponse(body, error.status_code, headers=headers)


def _problem(request: Request, error: HTTPException, allowed: str | None) -> str:
    """What the framework says of a path in two words does not help whoever has another server's paths in mind."""
    if allowed is not None:
        return f"{request.url.path[:MOST_OF_A_PATH]} takes {allowed}, not {request.method}"
    is_unknown = error.status_code == 404 and not isinstance(error, UnknownModelError)
    return "there is no such path here; /openapi.json lists all paths" if is_unknown else str(error.detail)


def error_code(kind: str) -> str:
    """The code for a type of pydantic's errors."""
    if kind in KIND_CODES:
        return KIND_CODES[kind]
    return INVALID_VALUE if kind in VALUE_ERRORS else INVALID_TYPE


async def handle_invalid_body(request: Request, error: Exception) -> JSONResponse:
    """Answers with the first error of a body."""
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes):  # FastAPI parses only what says that it is JSON
        return JSONResponse(error_body(NOT_JSON, 400, code="invalid_content_type"), 400)
    first = error.errors()[0]
    location = first["loc"][1:]
    code = error_code(first["type"])
    if not location or first["type"] == "json_invalid":
        message = WHOLE_BODY.get(first["type"], str(first["msg"]))
        return JSONResponse(error_body(message, 400, code=code), 400)
    message = f"{place_name(location)}: {first['msg']}"
    return JSONResponse(error_body(message, 400, parameter=str(location[0]), code=code), 400)

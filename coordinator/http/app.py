"""The web application."""

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from coordinator.http import endpoints, operations, tokens
from coordinator.http.authentication import Authentication, open_paths
from coordinator.http.body_limit import BodyLimit
from coordinator.http.connection_limit import ConnectionLimit
from coordinator.http.descriptions import FAILED, REFUSED
from coordinator.http.failures import error_body, handle_failure, handle_http_error, handle_invalid_body
from coordinator.http.front_end import FrontEnd
from coordinator.http.head_requests import HeadRequests
from coordinator.http.headers import AnswerHeaders
from coordinator.http.origins import open_to
from coordinator.http.page_routes import PAGE, page_routes
from coordinator.http.request_counter import RequestCounter
from coordinator.http.stalled_clients import StalledClients
from specpair.errors import SpecpairError
from specpair.server.authentication import Authenticator
from specpair.server.host_check import MESSAGE, MISDIRECTED, host_checked
from specpair.version import package_version


def create_app(front_end: FrontEnd) -> ASGIApp:
    """The endpoints, and the page at `/` if installed. Raises InvalidFieldError for tokens that cannot be used."""
    app = FastAPI(
        title="specpair",
        summary="Speculative decoding as a service pair, through OpenAI's API",
        version=package_version(),
        docs_url=None,  # FastAPI's page loads scripts from other hosts
        redoc_url=None,
        responses=REFUSED | FAILED,
        redirect_slashes=False,  # a path with one slash more is unknown
    )
    app.state.front_end = front_end
    app.include_router(endpoints.router)
    app.include_router(operations.router)
    app.include_router(tokens.router)
    app.routes.extend(page_routes(PAGE))
    app.add_middleware(HeadRequests)
    app.add_middleware(BodyLimit, max_bytes=front_end.config.max_body_bytes)
    app.add_exception_handler(SpecpairError, handle_failure)
    app.add_exception_handler(HTTPException, handle_http_error)
    app.add_exception_handler(RequestValidationError, handle_invalid_body)
    app.add_exception_handler(Exception, handle_failure)
    config = front_end.config
    authenticated = Authentication(app, Authenticator(config.security), open_paths(PAGE))
    refusal = JSONResponse(error_body(MESSAGE, MISDIRECTED, code="unknown_host"), MISDIRECTED)
    checked = host_checked(authenticated, config.host, config.allowed_hosts, config.security.tls, refusal)
    opened = open_to(ConnectionLimit(checked), config.allowed_origins)
    return RequestCounter(StalledClients(AnswerHeaders(opened)), front_end.metrics)

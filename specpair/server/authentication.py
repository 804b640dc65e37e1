"""Authenticates clients: by bearer token if the server has tokens, else by certificate, else anonymous."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from specpair.errors import UnauthenticatedError
from specpair.security.settings import ServerSecurity
from specpair.security.tokens import AUTHORIZATION, KnownTokens, TokenTable
from specpair.server.handlers import Behavior, with_behavior
from specpair.server.identity import ANONYMOUS, name_client
from specpair.server.streams import DrainableRequests

OPEN_METHODS = ("/grpc.health.v1.Health/Check",)
"""Open without a token: load balancers and container health checks have no secrets, and Check reveals none. Not Watch,
which never ends: unauthenticated clients could use up all calls of the server. Clients without a token get the state of
the process, whichever service they name."""


class Authenticator:
    """Names the clients of one server."""

    def __init__(self, security: ServerSecurity):
        """Raises InvalidFieldError for an unusable tokens file."""
        self._tokens = None if security.tokens_file is None else KnownTokens(security.tokens_file)

    def client_of(self, authorization: str | None, certificate_name: str = ANONYMOUS) -> str:
        """The client that sent this header over a connection with this certificate. Raises UnauthenticatedError."""
        return certificate_name if self._tokens is None else self._tokens.client_of(authorization)

    def standing(self, authorization: str | None, client: str) -> Callable[[], None]:
        """Returns a check that this header still belongs to `client`, cheap enough for each message of a stream.

        The check raises UnauthenticatedError once the token was removed or given to another client.
        """
        if (tokens := self._tokens) is None:
            return lambda: None
        seen: TokenTable | None = None

        def check() -> None:
            nonlocal seen
            if (table := tokens.table) is seen:
                return
            if tokens.client_of(authorization) != client:
                raise UnauthenticatedError
            seen = table

        return check


class AuthenticationInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls without a known token before reading their messages, and sets the client name for all others.

    A stream of requests ends at the first message after its token became invalid.
    """

    def __init__(self, authenticator: Authenticator):
        self._authenticator = authenticator

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        authorization = _authorization(handler_call_details.invocation_metadata)
        try:
            self._authenticator.client_of(authorization)
        except UnauthenticatedError:
            if handler_call_details.method in OPEN_METHODS:
                return _answered_unread(await continuation(handler_call_details))
            return grpc.stream_stream_rpc_method_handler(_refuse)
        handler: Any = await continuation(handler_call_details)
        return handler and with_behavior(handler, lambda behavior: self._named(behavior, authorization))

    def _named(self, behavior: Behavior, authorization: str | None) -> Behavior:
        def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
            client = self._authenticator.client_of(authorization, certificate_name(context.auth_context()))
            name_client(client)
            if isinstance(request, DrainableRequests):
                request.check_each(self._authenticator.standing(authorization, client))
            return behavior(request, context)

        return handle


def certificate_name(auth_context: Mapping[str, Iterable[bytes]]) -> str:
    """The common name of a client's certificate, else its first other name; ANONYMOUS without a certificate."""
    names = [*auth_context.get("x509_common_name", ()), *auth_context.get("x509_subject_alternative_name", ())]
    return next((name.decode(errors="replace") for name in names if name), ANONYMOUS)


def _answered_unread(handler: Any) -> grpc.RpcMethodHandler:
    """Answers as for an empty request. The request of an unauthenticated client is not read: it could be large, or
    never end."""

    async def answer(request_iterator: Any, context: grpc.aio.ServicerContext) -> None:
        await context.write(await handler.unary_unary(handler.request_deserializer(b""), context))

    return grpc.stream_stream_rpc_method_handler(answer, None, handler.response_serializer)


async def _refuse(request_iterator: Any, context: grpc.aio.ServicerContext) -> None:
    raise UnauthenticatedError


def _authorization(metadata: Any) -> str | None:
    for key, value in metadata or ():
        if key == AUTHORIZATION:
            return value if isinstance(value, str) else value.decode(errors="replace")
    return None

"""Who calls: a bearer token where tokens are asked for, else the certificate, else nobody knows."""

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
"""For whoever reaches the port: load balancers and health checks of containers have no secrets, and it tells none. Not
its Watch, which never ends: strangers could take all calls that a server bears. They get the state of the process,
whichever service they name."""


class Authenticator:
    """Names the clients of one server."""

    def __init__(self, security: ServerSecurity):
        """Raises InvalidFieldError for a file of tokens that cannot be used."""
        self._tokens = None if security.tokens_file is None else KnownTokens(security.tokens_file)

    def client_of(self, authorization: str | None, certificate_name: str = ANONYMOUS) -> str:
        """The client that sent this header over a connection with this certificate. Raises UnauthenticatedError."""
        return certificate_name if self._tokens is None else self._tokens.client_of(authorization)

    def standing(self, authorization: str | None, client: str) -> Callable[[], None]:
        """A check, cheap enough for each message of a stream, that this header is still that client's.

        It raises UnauthenticatedError once the token is taken away, or given to another client.
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
    """Refuses calls without a known token before their messages are read, and names the client of all others.

    A stream of requests ends with the first message that comes when its token does not count any more.
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
    """The common name of a client's certificate, or its first other name; without a certificate ANONYMOUS."""
    names = [*auth_context.get("x509_common_name", ()), *auth_context.get("x509_subject_alternative_name", ())]
    return next((name.decode(errors="replace") for name in names if name), ANONYMOUS)


def _answered_unread(handler: Any) -> grpc.RpcMethodHandler:
    """Answers as if nothing had been asked. What strangers send is not read: it could be large, or never end, and the
    call with it."""

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

"""Who calls: a bearer token where tokens are asked for, else the certificate, else nobody knows."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from specpair.errors import UnauthenticatedError
from specpair.rpc.identity import ANONYMOUS, name_client
from specpair.rpc.security import ServerSecurity
from specpair.rpc.tokens import AUTHORIZATION, KnownTokens

OPEN_METHODS = ("/grpc.health.v1.Health/Check",)
"""For whoever reaches the port: load balancers and health checks of containers have no secrets, and it tells none. Not
its Watch, which never ends: strangers could take all calls that a server bears."""

Behavior = Callable[[Any, grpc.aio.ServicerContext], Any]


class Authenticator:
    """Names the clients of one server."""

    def __init__(self, security: ServerSecurity):
        """Raises InvalidFieldError for a file of tokens that cannot be used."""
        self._tokens = None if security.tokens_file is None else KnownTokens(security.tokens_file)

    def client_of(self, authorization: str | None, certificate_name: str = ANONYMOUS) -> str:
        """The client that sent this header over a connection with this certificate. Raises UnauthenticatedError."""
        return certificate_name if self._tokens is None else self._tokens.client_of(authorization)


class AuthenticationInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls without a known token before their messages are read, and names the client of all others."""

    def __init__(self, authenticator: Authenticator):
        self._authenticator = authenticator

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        if handler_call_details.method in OPEN_METHODS:
            return await continuation(handler_call_details)
        authorization = _authorization(handler_call_details.invocation_metadata)
        try:
            self._authenticator.client_of(authorization)
        except UnauthenticatedError:
            return grpc.stream_stream_rpc_method_handler(_refuse)
        handler: Any = await continuation(handler_call_details)
        return handler and _with_behavior(handler, lambda behavior: self._named(behavior, authorization))

    def _named(self, behavior: Behavior, authorization: str | None) -> Behavior:
        def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
            name_client(self._authenticator.client_of(authorization, certificate_name(context.auth_context())))
            return behavior(request, context)

        return handle


def certificate_name(auth_context: Mapping[str, Iterable[bytes]]) -> str:
    """The common name of a client's certificate, or its first other name; without a certificate ANONYMOUS."""
    names = [*auth_context.get("x509_common_name", ()), *auth_context.get("x509_subject_alternative_name", ())]
    return next((name.decode(errors="replace") for name in names if name), ANONYMOUS)


async def _refuse(request_iterator: Any, context: grpc.aio.ServicerContext) -> None:
    raise UnauthenticatedError


def _authorization(metadata: Any) -> str | None:
    for key, value in metadata or ():
        if key == AUTHORIZATION:
            return value if isinstance(value, str) else value.decode(errors="replace")
    return None


def _with_behavior(handler: Any, change: Callable[[Behavior], Behavior]) -> Any:
    """A handler of the same kind that does something else."""
    coders = (handler.request_deserializer, handler.response_serializer)
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(change(handler.unary_unary), *coders)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(change(handler.unary_stream), *coders)
    if handler.stream_stream:
        return grpc.stream_stream_rpc_method_handler(change(handler.stream_stream), *coders)
    return grpc.stream_unary_rpc_method_handler(change(handler.stream_unary), *coders)

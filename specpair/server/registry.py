"""The services of one server. They may be added while it runs."""

from collections.abc import Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from specpair.errors import StartingError

RpcHandlers = Mapping[str, grpc.RpcMethodHandler]


class ServiceRegistry(grpc.GenericRpcHandler):
    """Finds the handler of a method. Until the registry is complete, unknown methods are answered UNAVAILABLE.

    grpc.aio accepts services only before the start, but a process must answer health checks while its model loads.
    The generated `add_..._to_server` functions pass their handlers to this class.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler] = {}
        self.service_names: list[str] = []
        self.is_complete = False

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Called by the generated code; ignored, because add_registered_method_handlers gets the same methods."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: RpcHandlers) -> None:
        self.service_names.append(service_name)
        for method, handler in method_handlers.items():
            self._handlers[f"/{service_name}/{method}"] = handler

    def find(self, method: str) -> grpc.RpcMethodHandler | None:
        """The handler of `/package.Service/Method`, if there is one."""
        return self._handlers.get(method)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        handler = self._handlers.get(handler_call_details.method)
        if handler is None and not self.is_complete:
            return grpc.stream_stream_rpc_method_handler(_refuse_while_starting)
        return handler


async def _refuse_while_starting(request_iterator: Any, context: grpc.aio.ServicerContext) -> None:
    raise StartingError

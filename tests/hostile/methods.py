"""Every method that the services have, with the shape of its calls."""

from dataclasses import dataclass
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from specpair.v1 import coordinator_service_pb2, draft_service_pb2, sequence_service_pb2, target_service_pb2

MODELS = ("target", "draft")
EVERYWHERE = ("coordinator", *MODELS)


@dataclass(frozen=True)
class Method:
    """A method at one of the services."""

    endpoint: str
    """coordinator, target or draft."""
    path: str
    """`/package.Service/Method`"""
    name: str
    shape: str
    """What grpc calls it, such as unary_stream."""
    request_class: type[Message]
    response_class: type[Message]


def make_method(endpoint: str, descriptor: MethodDescriptor) -> Method:
    shape = "_".join("stream" if one else "unary" for one in (descriptor.client_streaming, descriptor.server_streaming))
    classes: Any = [message_factory.GetMessageClass(one) for one in (descriptor.input_type, descriptor.output_type)]
    service = descriptor.containing_service
    assert service is not None
    return Method(endpoint, f"/{service.full_name}/{descriptor.name}", descriptor.name, shape, *classes)


_SERVED = (
    (coordinator_service_pb2, ("coordinator",)),
    (target_service_pb2, ("target",)),
    (draft_service_pb2, ("draft",)),
    (sequence_service_pb2, MODELS),
)

OWN_METHODS = tuple(
    make_method(endpoint, descriptor)
    for module, endpoints in _SERVED
    for service in module.DESCRIPTOR.services_by_name.values()
    for descriptor in service.methods
    for endpoint in endpoints
)
"""Of the contract."""

COMMON_METHODS = tuple(
    make_method(endpoint, module.DESCRIPTOR.services_by_name[service].methods_by_name[name])
    for endpoint in EVERYWHERE
    for module, service, name in (
        (health_pb2, "Health", "Check"),
        (reflection_pb2, "ServerReflection", "ServerReflectionInfo"),
    )
)
"""Health and reflection. (Health's Watch never ends by itself; it is among what is aborted.)"""

_BY_NAME = {(method.endpoint, method.name): method for method in (*OWN_METHODS, *COMMON_METHODS)}


def method_of(endpoint: str, name: str) -> Method:
    """By its bare name."""
    return _BY_NAME[endpoint, name]

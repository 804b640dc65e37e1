"""`specpair health`: whether one service answers and is ready, for health checks of containers."""

from typing import Annotated, Any

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from command.failures import CommandError, friendly
from command.flags.access import current_access
from command.flags.shared import DEFAULT_ADDRESS
from specpair.client.channel import name_options
from specpair.client.tls_hints import tls_hint
from specpair.security.credentials import grpc_channel_credentials
from specpair.security.settings import ChannelSecurity

MAX_TIMEOUT = 60.0


@friendly
def health(
    address: Annotated[
        str, typer.Option("--address", envvar="SPECPAIR_ADDRESS", help="Any of the three services, as host:port.")
    ] = DEFAULT_ADDRESS,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=MAX_TIMEOUT, help="Seconds to wait for the answer.")
    ] = 3.0,
) -> None:
    """Ask a service over the gRPC health protocol whether it is ready. Exits with status 0 only if it is."""
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(_ask(address, timeout))
    if status != "SERVING":
        raise CommandError(f"{address} is {status}")
    typer.echo(f"{address} is {status}")


def _ask(address: str, timeout: float) -> health_pb2.HealthCheckResponse.ServingStatus:
    """The status of the whole process. Raises CommandError if the service does not answer."""
    access = current_access()
    with _channel(address, access) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError as error:
            hint = tls_hint(error.details() or "", speaks_tls=access.tls is not None)
            problem = f"{address} does not answer: {error.code().name}"
            raise CommandError(problem if hint is None else f"{problem}; {hint}") from None
    return answer.status


def _channel(address: str, access: ChannelSecurity) -> grpc.Channel:
    """Health checks need no token; all other calls of a protected service do."""
    if access.tls is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc_channel_credentials(access.tls), name_options(access.server_name))

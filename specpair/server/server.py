"""The common base of every service: a gRPC server with health and reflection, and the process around it."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

import grpc.aio
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from prometheus_client.registry import CollectorRegistry

from specpair.errors import SpecpairError
from specpair.rpc.addresses import join_address
from specpair.security.credentials import grpc_server_credentials
from specpair.server.authentication import AuthenticationInterceptor, Authenticator
from specpair.server.config import ServerConfig
from specpair.server.garbage import collect_only_new
from specpair.server.interceptors import ErrorInterceptor
from specpair.server.lasting_server import LastingServer
from specpair.server.logs import configure_logging
from specpair.server.metrics import MetricsInterceptor, RpcMetrics
from specpair.server.registry import RpcHandlers, ServiceRegistry
from specpair.server.releasing import ReleasingInterceptor
from specpair.server.stream_quota import StreamQuota, StreamQuotaInterceptor
from specpair.server.watchdog import Watchdog, exit_at_once

WATCHDOG_MARGIN_SECONDS = 10.0
"""Time for the rest of the shutdown: last statuses, closing connections and sequences."""
STARTING_SECONDS = 2.0
"""Time to stop for a service that was never ready. It serves nobody, and may be in a part of its start that nothing
interrupts, such as a download."""
QUEUED_SECONDS = 1.0
"""Time to refuse calls that have arrived but were not handled yet. It ends even if calls keep arriving."""
CLOSING_SECONDS = 0.2
"""Time for the last statuses, and for health and reflection calls, which have no deadline."""
PING_INTERVAL_MS = 100
"""Shortest allowed time between a client's pings; `specpair.client.channel` pings less often."""
KEEPALIVE_MS = 30_000
"""Silence after which the server pings a client, so that a vanished client does not keep its resources."""
KEEPALIVE_TIMEOUT_MS = 20_000
IDLE_MS = 600_000
"""A connection without calls is closed after this time; clients open a new one when they need it."""
MAX_CALLS = 4096
"""Calls at once over all connections; further calls get RESOURCE_EXHAUSTED. Far more than ever run: the limit bounds
the memory of waiting calls and of clients that do not read."""
EXCESS_CALLS = 256
"""Additional calls for health and for refusals with a reason; beyond these gRPC refuses without a reason."""
MAX_CALLS_PER_CONNECTION = 1024
"""HTTP/2 streams at once on one connection; a client's library queues further ones."""
MAX_METADATA_BYTES = 16 * 1024
ONLY_IDENTITY = 1
"""The bit of what is not compressed. 60 KB can be unpacked to a message of 64 MiB, which takes seconds to decode."""

logger = logging.getLogger(__name__)


class BindError(OSError):
    """The address cannot be listened on."""


class ServiceFailedError(Exception):
    """The service cannot recover: only a new process helps."""


class ServiceServer:
    """A gRPC server with errors as statuses, message limits, health (NOT_SERVING until ready) and reflection.

    The generated `add_..._to_server(servicer, server)` functions accept it as their server, before or after the start.
    """

    def __init__(self, config: ServerConfig, metrics: CollectorRegistry | None = None):
        """Counts calls in `metrics`, if given. Raises InvalidFieldError for unusable tokens."""
        self._config = config
        self.is_ready = False
        """Whether health is SERVING."""
        self._is_stopping = False
        self._registry = ServiceRegistry()
        self._health = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue]: stubs lack it
        self._errors = ErrorInterceptor(MAX_CALLS)
        self._drains: list[Callable[[float], Awaitable[None]]] = []
        self._stopped_together: list[Callable[[], Awaitable[None]]] = []
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        interceptors: list[grpc.aio.ServerInterceptor] = [
            self._errors,  # outermost, so that it handles the refusals of the others too
            AuthenticationInterceptor(Authenticator(config.security)),
        ]
        if config.max_streams_per_client is not None:
            interceptors.append(StreamQuotaInterceptor(StreamQuota(config.max_streams_per_client, metrics)))
        if metrics is not None:
            interceptors.insert(0, MetricsInterceptor(RpcMetrics(metrics), self._registry.find))
        interceptors.insert(0, ReleasingInterceptor())

        def make() -> grpc.aio.Server:
            return grpc.aio.server(
                interceptors=interceptors,
                handlers=[self._registry],
                options=_server_options(config),
                maximum_concurrent_rpcs=MAX_CALLS + EXCESS_CALLS,
            )

        self._credentials: grpc.ServerCredentials | None = None
        """Made once: they reload their files by themselves."""
        self._server = LastingServer(make, self._listen, self.fail, config.host)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: tuple[grpc.GenericRpcHandler, ...]) -> None:
        self._registry.add_generic_rpc_handlers(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: RpcHandlers) -> None:
        self._registry.add_registered_method_handlers(service_name, method_handlers)

    async def start(self) -> int:
        """Listens, with health NOT_SERVING. Returns the port; raises BindError, InvalidFieldError for certificates."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self)
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        try:
            return await self._server.start()
        except RuntimeError:
            raise BindError(
                f"cannot listen on {self._config.address}: it is in use, or none of this machine; see --host and --port"
            ) from None

    def _listen(self, server: grpc.aio.Server, port: int | None) -> int:
        """Has `server` listen on `port`, or on the configured one if None. Raises RuntimeError."""
        address = self._config.address if port is None else join_address(self._config.host, port)
        tls = self._config.security.tls
        if tls is None:
            return server.add_insecure_port(address)
        if self._credentials is None:
            self._credentials = grpc_server_credentials(tls)
        return server.add_secure_port(address, self._credentials)

    async def set_ready(self, is_ready: bool) -> None:
        """Sets health of the process and each service. The first True also adds reflection: services are complete."""
        if is_ready and not self._registry.is_complete:
            names = [*self._registry.service_names, reflection.SERVICE_NAME]
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), self)
            self._registry.is_complete = True
        self.is_ready = is_ready and not self._is_stopping
        states = health_pb2.HealthCheckResponse
        for name in ("", process_service(os.getpid()), *self._registry.service_names):
            await self._health.set(name, states.SERVING if is_ready else states.NOT_SERVING)

    def fail(self, reason: str) -> None:
        """Reports that the services cannot recover. Health becomes NOT_SERVING and `serve` ends, so that a supervisor
        can start a new process."""
        if not self._failure.done():
            self._failure.set_result(reason)

    async def until_failed(self) -> NoReturn:
        """Waits until the services fail, sets health to NOT_SERVING and raises ServiceFailedError."""
        reason = await self._failure
        await self.set_ready(False)
        raise ServiceFailedError(reason)

    def drain_first(self, drain: Callable[[float], Awaitable[None]]) -> None:
        """Registers `drain`, called with the grace time in seconds when the server is told to stop.

        Meanwhile new calls are refused with ShuttingDownError, and health is NOT_SERVING.
        """
        self._drains.append(drain)

    def stop_together(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Registers `stop`, called when the server stops, after its calls have ended. It may be called repeatedly."""
        self._stopped_together.append(stop)

    async def stop(self) -> None:
        """Refuses new calls and ends idle streams; running calls have the grace time to finish."""
        seconds = self._config.grace_seconds
        if not self._is_stopping:
            logger.info(
                "stopping: running calls have %g s to finish", seconds, extra={"calls": self._errors.calls.count}
            )
        self.is_ready, self._is_stopping = False, True
        deadline = time.monotonic() + seconds
        await self._health.enter_graceful_shutdown()
        self._errors.calls.drain()
        await asyncio.gather(*(drain(seconds) for drain in self._drains))
        await self._errors.calls.wait_until_idle(max(deadline - time.monotonic(), 0.0))
        await self._errors.calls.wait_until_quiet(QUEUED_SECONDS)
        await asyncio.gather(self._server.stop(CLOSING_SECONDS), *(stop() for stop in self._stopped_together))


def process_service(pid: int) -> str:
    """The process's name in the health service: it tells a process from another one on the same port."""
    return f"process-{pid}"


def _server_options(config: ServerConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.compression_enabled_algorithms_bitset", ONLY_IDENTITY),
        ("grpc.max_send_message_length", config.max_message_bytes),
        ("grpc.max_receive_message_length", config.max_message_bytes),
        ("grpc.so_reuseport", 0),  # otherwise two processes share a port and nobody notices
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_INTERVAL_MS),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # the one that counts, as at the client
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    ]


Build = Callable[[ServiceServer], AbstractAsyncContextManager[object]]


async def serve(
    config: ServerConfig, build: Build, name: str, watchdog: Watchdog, metrics: CollectorRegistry | None = None
) -> None:
    """Serves until cancelled. `build` adds the servicers and owns what they serve: it is left after the last call.

    Calls are counted in `metrics`, if given; the watchdog is armed if the services fail. Raises BindError,
    ServiceFailedError, and whatever `build` raises.
    """
    server = ServiceServer(config, metrics)
    port = await server.start()
    try:
        async with build(server):
            try:
                collect_only_new()
                await server.set_ready(True)
                watchdog.timeout_seconds = config.grace_seconds + WATCHDOG_MARGIN_SECONDS
                logger.info("%s listening on %s", name, join_address(config.host, port))
                await server.until_failed()
            except ServiceFailedError:
                watchdog.arm()  # the broken part may not stop by itself
                raise
            finally:
                await server.stop()
    finally:
        await server.stop()
        logger.info("%s stopped", name)


def run_service(config: ServerConfig, build: Build, name: str, metrics: CollectorRegistry | None = None) -> None:
    """Runs a service as a process: log, server, signals. Exits with status 1 if the service cannot start or fails."""
    configure_logging(config.log_format, config.log_level)
    watchdog = Watchdog(STARTING_SECONDS)
    try:
        run(lambda: serve(config, build, name, watchdog, metrics), watchdog)
    except (SpecpairError, BindError) as error:
        logger.error("%s cannot start: %s", name, error)
        raise SystemExit(1) from None
    except ServiceFailedError as error:
        logger.error("%s ends: %s", name, error)
        exit_at_once()  # libraries that clean up after a lost device may hang or crash


def run(main: Callable[[], Awaitable[None]], watchdog: Watchdog) -> None:
    """Runs a coroutine under uvloop; the first SIGINT or SIGTERM cancels it, a second one ends the process.

    If the shutdown takes too long, the watchdog ends the process.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run_until_signal(main, watchdog))
    watchdog.disarm()


async def _run_until_signal(main: Callable[[], Awaitable[None]], watchdog: Watchdog) -> None:
    task = asyncio.ensure_future(main())

    def stop() -> None:
        if watchdog.is_armed:
            watchdog.exit("a second signal came")
        watchdog.arm()
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not watchdog.is_armed:
            raise

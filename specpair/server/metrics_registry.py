"""The metrics of one process, with what every service says of itself."""

from typing import Literal

from prometheus_client import Gauge, PlatformCollector, ProcessCollector, disable_created_metrics
from prometheus_client.registry import CollectorRegistry

from specpair.version import package_version

Service = Literal["coordinator", "draft", "target"]


def service_registry(service: Service) -> CollectorRegistry:
    """A registry with the process, its Python and its version; the service adds its own metrics."""
    disable_created_metrics()  # a second series beside every counter and histogram, which nobody asks for
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    build = Gauge(
        "specpair_build_info", "The service and its version; always 1.", ["version", "service"], registry=registry
    )
    build.labels(package_version(), service).set(1)
    return registry

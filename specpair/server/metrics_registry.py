"""The metrics registry of one process, with the metrics that every service has."""

from typing import Literal

from prometheus_client import Gauge, PlatformCollector, ProcessCollector, disable_created_metrics
from prometheus_client.registry import CollectorRegistry

from specpair.version import package_version

Service = Literal["coordinator", "draft", "target"]


def service_registry(service: Service) -> CollectorRegistry:
    """A registry with process, Python and version metrics; the service adds its own."""
    disable_created_metrics()  # an unneeded second series for every counter and histogram
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    build = Gauge(
        "specpair_build_info", "The service and its version; always 1.", ["version", "service"], registry=registry
    )
    build.labels(package_version(), service).set(1)
    return registry

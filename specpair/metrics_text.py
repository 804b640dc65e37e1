"""Metrics as text, for whoever scrapes them."""

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import CollectorRegistry

OPENMETRICS = "application/openmetrics-text"


def render(registry: CollectorRegistry, accept_header: str = "") -> tuple[bytes, str]:
    """The metrics and their content type: OpenMetrics, with exemplars, if the Accept header names it, else plain text.

    Takes any header. (The library's own choice of an encoder fails on versions that are no numbers.)
    """
    if any(media.split(";")[0].strip().lower() == OPENMETRICS for media in accept_header.split(",")):
        return openmetrics.generate_latest(registry), openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4

"""Metrics as text for scrapers."""

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry

OPENMETRICS = "application/openmetrics-text"
END = b"# EOF\n"


def render(registry: CollectorRegistry, accept_header: str = "") -> tuple[bytes, str]:
    """The metrics and their content type: OpenMetrics, with exemplars, if the Accept header names it, else plain text.

    Accepts any header. (The library's own `choose_encoder` fails on versions that are not numbers.)
    """
    pieces, content_type = _pieces(registry, accept_header)
    return b"".join(pieces), content_type


async def render_in_turns(registry: CollectorRegistry, accept_header: str = "") -> tuple[bytes, str]:
    """Like `render`, but yields to other tasks after each metric: all metrics together take some milliseconds."""
    pieces, content_type = _pieces(registry, accept_header)
    text: list[bytes] = []
    for piece in pieces:
        text.append(piece)
        await asyncio.sleep(0)
    return b"".join(text), content_type


def _pieces(registry: CollectorRegistry, accept_header: str) -> tuple[Iterator[bytes], str]:
    if any(media.split(";")[0].strip().lower() == OPENMETRICS for media in accept_header.split(",")):
        return _openmetrics_pieces(registry), openmetrics.CONTENT_TYPE_LATEST
    return (generate_latest(_One(metric)) for metric in registry.collect()), CONTENT_TYPE_PLAIN_0_0_4


def _openmetrics_pieces(registry: CollectorRegistry) -> Iterator[bytes]:
    for metric in registry.collect():
        yield openmetrics.generate_latest(_One(metric)).removesuffix(END)
    yield END


class _One(Collector):
    """A collector of a single metric, as the library requires."""

    def __init__(self, metric: Metric):
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)

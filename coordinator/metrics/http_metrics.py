"""Metrics of HTTP requests."""

from prometheus_client import Counter
from prometheus_client.registry import CollectorRegistry

GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/responses")
PATHS = (
    *(*GENERATING, "/tokenize", "/detokenize"),
    *("/v1/models", "/version", "/health", "/metrics", "/openapi.json"),
)
MODEL, PAGE, OTHER = "/v1/models/{model}", "/", "other"
GENERATION_STATUSES = (200, 400, 429, 500, 503)


class HttpMetrics:
    """Counts requests by path and status. Labels are bounded: a path that a client made up is not a label."""

    def __init__(self, registry: CollectorRegistry):
        self._requests = Counter(
            "specpair_http_requests",
            "Finished HTTP requests, by path and status of the answer; 499 if the client disconnected before that.",
            ["path", "status"],
            registry=registry,
        )
        for path in GENERATING:  # a series that starts at its first count hides that count from `rate`
            for status in GENERATION_STATUSES:
                self._requests.labels(path, str(status))

    def add(self, path: str, status: int) -> None:
        """Counts an answered request."""
        self._requests.labels(path_label(path, status), str(status)).inc()


def path_label(path: str, status: int) -> str:
    """The label of a path. A path outside the API that was found is the page or one of its files."""
    if path in PATHS:
        return path
    if path.startswith("/v1/models/"):
        return MODEL
    return PAGE if path == "/" or status < 400 else OTHER

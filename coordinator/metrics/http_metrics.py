"""What was asked over HTTP, and how it was answered."""

from prometheus_client import Counter
from prometheus_client.registry import CollectorRegistry

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/metrics", "/openapi.json")
MODEL, PAGE, OTHER = "/v1/models/{model}", "/", "other"
GENERATION_STATUSES = (200, 400, 429, 500, 503)


class HttpMetrics:
    """Counts requests by what was asked for and the status of the answer. Labels are bounded: no path of a client's."""

    def __init__(self, registry: CollectorRegistry):
        self._requests = Counter(
            "specpair_http_requests",
            "HTTP requests that have ended, by path and the status that their answer began with; 499 if the client "
            "left before that.",
            ["path", "status"],
            registry=registry,
        )
        for path in PATHS[:2]:  # a series that begins with its first count hides it from `rate`
            for status in GENERATION_STATUSES:
                self._requests.labels(path, str(status))

    def add(self, path: str, status: int) -> None:
        """A request was answered."""
        self._requests.labels(path_label(path, status), str(status)).inc()


def path_label(path: str, status: int) -> str:
    """One of few names. What is none of the API's paths and yet was found is the page or one of its files."""
    if path in PATHS:
        return path
    if path.startswith("/v1/models/"):
        return MODEL
    return PAGE if path == "/" or status < 400 else OTHER

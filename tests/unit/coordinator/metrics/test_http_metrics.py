"""Requests over HTTP are counted under few names."""

import pytest
from prometheus_client.registry import CollectorRegistry

from coordinator.metrics.http_metrics import GENERATION_STATUSES, HttpMetrics, path_label


@pytest.mark.parametrize(
    ("path", "status", "label"),
    [
        ("/v1/completions", 200, "/v1/completions"),
        ("/v1/completions", 421, "/v1/completions"),
        ("/v1/responses", 200, "/v1/responses"),
        ("/v1/responses/resp_1", 404, "other"),
        ("/v1/models", 200, "/v1/models"),
        ("/v1/models/some/long/name", 404, "/v1/models/{model}"),
        ("/", 200, "/"),
        ("/page.mjs", 200, "/"),
        ("/page.mjs", 304, "/"),
        ("/wp-login.php", 404, "other"),
        ("/v1/completions/", 404, "other"),
    ],
)
def test_paths_are_bounded(path: str, status: int, label: str) -> None:
    assert path_label(path, status) == label


def test_series_of_generation_begin_at_zero() -> None:
    registry = CollectorRegistry()
    metrics = HttpMetrics(registry)
    for status in GENERATION_STATUSES:
        labels = {"path": "/v1/completions", "status": str(status)}
        assert registry.get_sample_value("specpair_http_requests_total", labels) == 0
    metrics.add("/v1/completions", 429)
    labels = {"path": "/v1/completions", "status": "429"}
    assert registry.get_sample_value("specpair_http_requests_total", labels) == 1

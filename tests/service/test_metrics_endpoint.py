"""The metrics over HTTP, as a scraper gets them."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from specpair.security.settings import ServerSecurity
from specpair.server.config import ServerConfig
from specpair.server.metrics_endpoint import metrics_endpoint
from specpair.server.metrics_registry import service_registry
from specpair.server.server import BindError
from specpair.version import package_version

HOST = "127.0.0.1"
CONFIG = ServerConfig(port=0, metrics_port=0)
BUILD = {"version": package_version(), "service": "draft"}


@asynccontextmanager
async def scraper() -> AsyncIterator[httpx.AsyncClient]:
    async with (
        metrics_endpoint(service_registry("draft"), CONFIG) as port,
        httpx.AsyncClient(base_url=f"http://{HOST}:{port}") as client,
    ):
        yield client


async def test_plain_text() -> None:
    async with scraper() as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in parse_text(answer.text)}
    assert [(sample.labels, sample.value) for sample in families["specpair_build_info"].samples] == [(BUILD, 1.0)]
    assert {"python_info", "process_resident_memory_bytes"} <= families.keys()
    assert not any(name.endswith("_created") for name in families)


@pytest.mark.parametrize("version", ["1.0.0", "0.0.1", "zero", "1;q", ""])
async def test_openmetrics(version: str) -> None:
    """What Prometheus sends, and what nobody should."""
    accept = f"application/openmetrics-text;version={version};q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    async with scraper() as client:
        answer = await client.get("/metrics", headers={"accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert "specpair_build_info" in {family.name for family in parse_openmetrics(answer.text)}


async def test_health_is_what_the_service_says() -> None:
    said = [False, True, False]
    async with (
        metrics_endpoint(service_registry("draft"), CONFIG, is_ready=lambda: said.pop(0)) as port,
        httpx.AsyncClient(base_url=f"http://{HOST}:{port}") as client,
    ):
        assert [(await client.get("/health")).status_code for _ in range(3)] == [503, 200, 503]


async def test_nothing_else_is_served() -> None:
    async with scraper() as client:
        assert (await client.get("/")).status_code == 404
        assert (await client.post("/metrics")).status_code == 405


async def test_taken_port_is_one_line() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BindError, match=rf"cannot listen on {HOST}:{port}: .*; see --metrics-port"):
            async with metrics_endpoint(service_registry("draft"), replace(CONFIG, metrics_port=port)):
                pass


async def test_port_is_free_afterwards() -> None:
    async with metrics_endpoint(service_registry("draft"), CONFIG) as port:
        assert port
    socket.create_server((HOST, port)).close()


async def test_no_port_is_no_server() -> None:
    async with metrics_endpoint(service_registry("draft"), ServerConfig(port=0)) as port:
        assert port is None


async def test_metrics_want_a_token_where_tokens_are_asked_for(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("prometheus:the-token-of-prometheus\n")
    security = ServerSecurity(tokens_file=str(tokens))
    async with (
        metrics_endpoint(service_registry("draft"), replace(CONFIG, security=security)) as port,
        httpx.AsyncClient(base_url=f"http://{HOST}:{port}") as client,
    ):
        refused = await client.get("/metrics", headers={"authorization": "Bearer the-token-of-somebody"})
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert "specpair" not in refused.text
        served = await client.get("/metrics", headers={"authorization": "Bearer the-token-of-prometheus"})
        assert served.status_code == 200 and "specpair_build_info" in served.text
        assert (await client.get("/health")).status_code == 200


async def test_other_names_get_no_answer() -> None:
    """Of a page whose name was made to point here."""
    allowing = replace(CONFIG, allowed_hosts=("draft",))
    async with (
        metrics_endpoint(service_registry("draft"), allowing) as port,
        httpx.AsyncClient(base_url=f"http://{HOST}:{port}") as client,
    ):
        for path in ("/metrics", "/health"):
            names = ["example.org", f"target:{port}", "localhost", f"draft:{port}", f"10.1.2.3:{port}"]
            answers = [await client.get(path, headers={"host": name}) for name in names]
            assert [answer.status_code for answer in answers] == [421, 421, 200, 200, 200]
            assert "--http-allowed-hosts" in answers[0].json()["error"] and "specpair_" not in answers[0].text


async def test_silent_connections_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that ask nothing, or never end their heads, make room; one that is used again and again stays."""
    monkeypatch.setattr("specpair.server.metrics_endpoint.MOST_CONNECTIONS", 4)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(metrics_endpoint(service_registry("draft"), CONFIG))
        limits = httpx.Limits(max_connections=1)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://{HOST}:{port}", limits=limits))
        response = await client.get("/health")
        own = response.extensions["network_stream"].get_extra_info("client_addr")
        for number in range(12):
            silent = stack.enter_context(socket.create_connection((HOST, port or 0)))
            silent.sendall(b"GET /health HTTP/1.1\r\nHost: " if number % 2 else b"")
            assert (await client.get("/health")).status_code == 200
        response = await client.get("/health")
        assert response.extensions["network_stream"].get_extra_info("client_addr") == own
        async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}") as another:
            assert (await another.get("/health")).status_code == 200

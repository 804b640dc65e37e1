"""Paths and methods: which are unknown, which are not allowed, and that HEAD is GET without a body."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.registry import CollectorRegistry

from coordinator.http.authentication import open_paths
from coordinator.http.front_end import FrontEnd
from coordinator.http.page_routes import PAGE
from coordinator.http.server import HttpServer
from coordinator.http_config import HttpConfig
from specpair.security.settings import ServerSecurity
from tests.http_service import http_client, running_bundled_pair

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "MADE-UP")
UNKNOWN = (
    "/v1/embeddings",
    "/v1/responses/resp_1",
    "/v1/completions/",
    "/v1/models/",
    "/health/",
    "/v1",
    "/nothing.mjs",
    "/%2e%2e/app.py",
    "/%ff",
    "/page/",
)
READ, WRITTEN = "GET, HEAD", "POST"
KNOWN = {
    "/v1/completions": WRITTEN,
    "/v1/chat/completions": WRITTEN,
    "/v1/responses": WRITTEN,
    "/health": READ,
    "/metrics": READ,
    "/v1/models": READ,
    "/v1/models/target": READ,
    "/openapi.json": READ,
    "/": READ,
    "/main.mjs": READ,
}


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with running_bundled_pair() as pair, http_client(pair) as client:
        yield client


@pytest.mark.parametrize("path", UNKNOWN)
async def test_an_unknown_path_is_unknown_whatever_the_method(client: httpx.AsyncClient, path: str) -> None:
    for method in METHODS:
        answer = await client.request(method, path)
        assert (method, answer.status_code) == (method, 404)
        if method != "HEAD":
            error = answer.json()["error"]
            assert error["type"] == "not_found_error"
            assert error["message"] == "there is no such path here; /openapi.json lists all paths"


@pytest.mark.parametrize("path", KNOWN)
async def test_a_method_that_a_path_lacks_is_not_allowed(client: httpx.AsyncClient, path: str) -> None:
    for method in METHODS:
        if method in KNOWN[path].split(", "):
            continue
        answer = await client.request(method, path)
        assert (method, answer.status_code, answer.headers["allow"]) == (method, 405, KNOWN[path])
        if method != "HEAD":
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["message"] == f"{path} takes {KNOWN[path]}, not {method}"


@pytest.mark.parametrize("path", [path for path, allow in KNOWN.items() if allow == READ])
async def test_head_is_get_without_a_body(client: httpx.AsyncClient, path: str) -> None:
    """Over one connection, which a body that nobody expects would spoil."""
    head, get = await client.head(path), await client.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"") == (200, b"")
    assert get.content and head.headers["content-type"] == get.headers["content-type"]


async def test_every_file_of_the_page_is_served(client: httpx.AsyncClient) -> None:
    for path in open_paths(PAGE):
        assert (await client.get(path)).status_code == 200
    assert (await client.get("/")).text == (PAGE / "index.html").read_text()


async def test_without_a_token_no_path_and_no_method_is_told_apart(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("alice:a-token-of-enough-characters\n")
    config = HttpConfig(port=0, grace_seconds=0.0, security=ServerSecurity(tokens_file=str(tokens)))
    server = HttpServer(FrontEnd(config=config, registry=CollectorRegistry()))
    url = f"http://127.0.0.1:{await server.start()}"
    try:
        async with httpx.AsyncClient(base_url=url) as client:
            for path in (*UNKNOWN, *KNOWN.keys() - open_paths(PAGE)):
                answers = [await client.request(method, path) for method in METHODS]
                assert {answer.status_code for answer in answers} == {401}, path
            assert (await client.head("/main.mjs")).status_code == 200
    finally:
        await server.stop()

"""Which web pages may call the API from a browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.registry import CollectorRegistry

from coordinator.http.front_end import FrontEnd
from coordinator.http.server import HttpServer
from coordinator.http_config import HttpConfig
from specpair.errors import InvalidFieldError
from specpair.security.settings import UNPROTECTED, ServerSecurity

APP, OTHER = "https://app.example", "https://other.example"
QUESTION = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
ALLOWED = "access-control-allow-origin"


@asynccontextmanager
async def client_of(*origins: str, security: ServerSecurity = UNPROTECTED) -> AsyncIterator[httpx.AsyncClient]:
    """Of a front end whose pair is not connected: that an answer is a refusal changes nothing here."""
    config = HttpConfig(port=0, grace_seconds=0.0, allowed_origins=origins, security=security)
    server = HttpServer(FrontEnd(config=config, registry=CollectorRegistry()))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{await server.start()}") as client:
            yield client
    finally:
        await server.stop()


async def ask(client: httpx.AsyncClient, origin: str) -> httpx.Response:
    """What a browser asks before it posts JSON from a page of another site."""
    return await client.options("/v1/chat/completions", headers={"origin": origin, **QUESTION})


async def test_by_default_no_page_of_another_site_may() -> None:
    async with client_of() as client:
        assert (await ask(client, APP)).status_code == 405
        answer = await client.get("/v1/models", headers={"origin": APP})
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_pages_that_are_named_may(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("alice:a-token-of-enough-characters\n")
    async with client_of(APP, security=ServerSecurity(tokens_file=str(tokens))) as client:
        answer = await ask(client, APP)
        assert (answer.status_code, answer.headers[ALLOWED]) == (200, APP)
        assert answer.headers["access-control-allow-headers"].lower().count("authorization") == 1
        assert "POST" in answer.headers["access-control-allow-methods"]
        refused = await client.post("/v1/completions", headers={"origin": APP}, json={"prompt": "a"})
        assert (refused.status_code, refused.headers[ALLOWED]) == (401, APP), "the page may read why"
        assert "x-request-id" in refused.headers["access-control-expose-headers"]
        assert (await ask(client, OTHER)).status_code == 400
        assert ALLOWED not in (await client.get("/health", headers={"origin": OTHER})).headers
        assert ALLOWED not in (await client.get("/health")).headers
        private = {"origin": APP, "access-control-request-private-network": "true", **QUESTION}
        assert (await client.options("/v1/completions", headers=private)).status_code == 200
        token = {"origin": APP, "authorization": "Bearer a-token-of-enough-characters"}
        plain = await client.post("/v1/completions", headers={**token, "content-type": "text/plain"}, content="{}")
        assert plain.json()["error"]["code"] == "invalid_content_type", "as from any page"
        foreign = await client.get("/v1/models", headers={**token, "host": "other.example"})
        assert foreign.status_code == 421


async def test_all_may_if_so_asked() -> None:
    async with client_of("*") as client:
        answer = await ask(client, OTHER)
        assert (answer.status_code, answer.headers[ALLOWED]) == (200, "*")


@pytest.mark.parametrize(
    "origin",
    ["app.example", "https://app.example/", "https://a b", "ftp://a", "null", "https://*.example", "https://a:443"],
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(InvalidFieldError, match=r"http_allowed_origins: .* is no origin; it must be like"):
        HttpConfig(port=0, allowed_origins=(origin,))


@pytest.mark.parametrize("origin", ["*", "http://localhost:3000", "http://[::1]:3000", "https://app.example"])
def test_what_is_one_is_taken(origin: str) -> None:
    assert HttpConfig(port=0, allowed_origins=(origin,)).allowed_origins == (origin,)

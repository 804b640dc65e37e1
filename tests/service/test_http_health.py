"""/health while services come and go, and names that are allowed."""

import asyncio

import httpx
import pytest
from prometheus_client.registry import CollectorRegistry

from coordinator.http.front_end import FrontEnd
from coordinator.http.server import HttpServer
from coordinator.http_config import HttpConfig
from tests.http_service import BUNDLED, http_client, running_bundled_pair
from tests.services import engine_config, running_pair


async def health(client: httpx.AsyncClient) -> tuple[int, dict[str, str], str | None]:
    answer = await client.get("/health")
    return answer.status_code, answer.json(), answer.headers.get("retry-after")


async def test_a_draft_may_be_away_and_a_target_may_not() -> None:
    async with running_bundled_pair(draft_cooldown=0.01) as pair, http_client(pair) as client:
        assert pair.draft is not None
        ready = {"status": "ready", "target": "connected", "draft": "connected"}
        assert await health(client) == (200, ready, None)
        await pair.draft.stop()
        async with asyncio.timeout(60):
            while (await health(client))[1]["draft"] == "connected":
                await asyncio.sleep(0.02)
        assert await health(client) == (200, {**ready, "draft": "away"}, None)
        await pair.target.stop()
        async with asyncio.timeout(60):
            while (await health(client))[0] == 200:
                await asyncio.sleep(0.02)
        status, body, retry_after = await health(client)
        assert (status, body["status"], body["target"], retry_after) == (503, "not ready", "away", "1")


async def test_without_a_draft() -> None:
    async with running_pair(engine_config(BUNDLED / "target", block_size=16)) as pair, http_client(pair) as client:
        assert await health(client) == (200, {"status": "ready", "target": "connected", "draft": "none"}, None)


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ((), "coordinator:8000", 421),
        (("coordinator",), "coordinator:8000", 503),
        (("api.Example.org", "coordinator"), "API.example.org", 503),
        (("coordinator",), "example.org", 421),
        (("*",), "example.org", 503),
    ],
)
async def test_names_that_are_allowed(allowed: tuple[str, ...], host: str, status: int) -> None:
    """503, since there is no pair."""
    config = HttpConfig(port=0, grace_seconds=0.0, allowed_hosts=allowed)
    server = HttpServer(FrontEnd(config=config, registry=CollectorRegistry()))
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        assert (await client.get("/health", headers={"host": host})).status_code == status
    await server.stop()

"""Metrics made in turns are what the library makes of them at once."""

import asyncio

import pytest
from prometheus_client import Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import CollectorRegistry

from specpair.server.metrics_text import OPENMETRICS, render, render_in_turns


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("asked", "A counter.", ["who"], registry=registry).labels("é\n").inc(3, {"trace_id": "1"})
    Gauge("level", "A gauge.", registry=registry).set(1.5)
    Histogram("seconds", "A histogram.", registry=registry).observe(0.3)
    return registry


async def test_both_formats(registry: CollectorRegistry) -> None:
    for accept, expected in (("", generate_latest(registry)), (OPENMETRICS, openmetrics.generate_latest(registry))):
        assert render(registry, accept) == await render_in_turns(registry, accept)
        assert render(registry, accept)[0] == expected


async def test_others_have_their_turn(registry: CollectorRegistry) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await render_in_turns(registry)
    counting.cancel()
    assert turns >= 3

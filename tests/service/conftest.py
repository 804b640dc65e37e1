"""Services of tiny models, several in one process."""

from collections.abc import AsyncIterator

import httpx
import pytest
import torch

from draft_service.ahead.row_cost import RowCost
from tests.http_service import http_client
from tests.services import RunningPair

ROW_SECONDS = 0.0002
"""Of a fast processor."""


@pytest.fixture(autouse=True, scope="session")
def one_thread_each() -> None:
    """Tiny products gain nothing from more threads, and the threads of several engines get in each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def the_same_row_cost_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many proposals are prepared depends on the speed of the processor, except in tests."""
    monkeypatch.setattr(RowCost, "seconds", lambda _, count, size: count * ROW_SECONDS)


@pytest.fixture(scope="module")
async def client(pair: RunningPair) -> AsyncIterator[httpx.AsyncClient]:
    """A client that knows nothing but HTTP, of the module's own pair."""
    async with http_client(pair) as client:
        yield client

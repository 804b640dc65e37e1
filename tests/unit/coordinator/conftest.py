"""What holds for every test of the coordinator."""

import pytest

from coordinator.peers import backoff
from specpair.rpc.retry import RetryPolicy


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake is back at once, or never."""
    monkeypatch.setattr(backoff, "POLICY", RetryPolicy(first=0.001))

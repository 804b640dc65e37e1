"""What the endpoints serve from: nothing before the pair is connected, nothing more once the process stops."""

import asyncio
from dataclasses import dataclass, field

from prometheus_client.registry import CollectorRegistry

from coordinator.http_config import HttpConfig
from coordinator.metrics.http_metrics import HttpMetrics
from coordinator.serving.serving import Serving
from specpair.errors import PeerUnavailableError, ShuttingDownError


@dataclass(kw_only=True)
class FrontEnd:
    """The state of the HTTP front end."""

    config: HttpConfig
    registry: CollectorRegistry
    """Of the metrics that /metrics shows."""
    port: int = 0
    """That it listens on, once it does."""
    is_stopping: bool = False
    grace_is_over: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends the requests that are still running."""
    metrics: HttpMetrics = field(init=False)
    _serving: Serving | None = None

    def __post_init__(self) -> None:
        self.metrics = HttpMetrics(self.registry)

    @property
    def serving(self) -> Serving:
        """Raises PeerUnavailableError before the pair is connected, ShuttingDownError when the process stops."""
        if self.is_stopping:
            raise ShuttingDownError
        if self._serving is None:
            raise PeerUnavailableError("the pair is not connected yet")
        return self._serving

    def set_ready(self, serving: Serving) -> None:
        self._serving = serving

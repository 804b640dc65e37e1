"""The state of the HTTP front end. It serves once the pair is connected, until the process stops."""

import asyncio
from dataclasses import dataclass, field

from prometheus_client.registry import CollectorRegistry

from coordinator.http_config import HttpConfig
from coordinator.metrics.http_metrics import HttpMetrics
from coordinator.serving.serving import Serving
from specpair.errors import PeerUnavailableError, ShuttingDownError


@dataclass(kw_only=True)
class FrontEnd:
    """What the endpoints share."""

    config: HttpConfig
    registry: CollectorRegistry
    """The registry of the metrics at /metrics."""
    port: int = 0
    """The port that it listens on; 0 before that."""
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

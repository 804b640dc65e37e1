"""Metrics of beam searches."""

from prometheus_client import Counter
from prometheus_client.registry import CollectorRegistry


class BeamMetrics:
    """Counts searches, their passes, and the steps that these took."""

    def __init__(self, registry: CollectorRegistry):
        self._searches = Counter("specpair_beam_searches", "Beam searches that found their beams.", registry=registry)
        self._passes = Counter(
            "specpair_beam_passes", "Rounds of beam searches, each with a pass of the target.", registry=registry
        )
        self._steps = Counter(
            "specpair_beam_steps", "Tokens by which rounds of beam searches continued their beams.", registry=registry
        )

    def add_pass(self, step_count: int) -> None:
        """Counts a round that took so many steps of the search."""
        self._passes.inc()
        self._steps.inc(step_count)

    def add_search(self) -> None:
        """Counts a search that found its beams."""
        self._searches.inc()

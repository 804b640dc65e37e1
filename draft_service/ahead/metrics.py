"""Metrics of work ahead, read at each scrape."""

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from draft_service.ahead.counts import AheadCounts, Result
from specpair.engine.metrics import histogram


class CountedAhead(Protocol):
    """The parts of work ahead that metrics read."""

    @property
    def counts(self) -> AheadCounts: ...
    @property
    def branch_count(self) -> int: ...


class AheadCollector(Collector):
    """The counts of work ahead."""

    def __init__(self, ahead: CountedAhead):
        self._ahead = ahead

    def collect(self) -> Iterable[Metric]:
        counts = self._ahead.counts
        calls = CounterMetricFamily(
            "specpair_draft_ahead_calls",
            "Calls after work ahead: their proposal was ready (hit), under way (late), or another (miss); by the "
            "number of tokens that were accepted before them.",
            labels=["result", "position"],
        )
        for (result, accepted_count), number in sorted(({(result, 0): 0 for result in Result} | counts.calls).items()):
            calls.add_metric([result, str(accepted_count)], number)
        yield calls
        blocks = CounterMetricFamily(
            "specpair_draft_ahead_blocks",
            "Proposals that were begun before a call, by what became of them.",
            labels=["end"],
        )
        for end in ("used", "unused", "dropped", "failed"):
            blocks.add_metric([end], counts.blocks[end])
        yield blocks
        yield CounterMetricFamily(
            "specpair_draft_ahead_tokens", "Tokens drawn before a call, used or not.", value=counts.tokens
        )
        yield GaugeMetricFamily(
            "specpair_draft_ahead_branches", "Proposals under way or ready for a call.", value=self._ahead.branch_count
        )
        yield histogram(
            "specpair_draft_ahead_ready", "Proposals that were ready when the next call came.", counts.ready
        )

"""Metrics of the target service alone, read at each scrape."""

from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from specpair.sequences.conditional_calls import ConditionOutcome
from specpair.sequences.sequel import SequelOutcome
from target_service.late_rows import LateOutcome
from target_service.masking import MaskMaker


class ConditionalCallsCollector(Collector):
    """Counts calls that depend on a verdict, by what became of them."""

    def __init__(self, outcomes: Mapping[ConditionOutcome, int]):
        self._outcomes = outcomes

    def collect(self) -> Iterable[Metric]:
        calls = CounterMetricFamily(
            "specpair_target_conditional_calls",
            "Verifications that depend on the verdict before, by what became of them.",
            labels=["outcome"],
        )
        for outcome in ConditionOutcome:
            calls.add_metric([outcome], self._outcomes.get(outcome, 0))
        yield calls


class LateRowsCollector(Collector):
    """Counts verifications that were begun before their distributions were here, by when those came."""

    def __init__(self, outcomes: Mapping[LateOutcome, int]):
        self._outcomes = outcomes

    def collect(self) -> Iterable[Metric]:
        calls = CounterMetricFamily(
            "specpair_target_late_distributions",
            "Verifications begun without their distributions: those came in time, were waited for, or never came.",
            labels=["outcome"],
        )
        for outcome in LateOutcome:
            calls.add_metric([outcome], self._outcomes.get(outcome, 0))
        yield calls


class SequelsCollector(Collector):
    """Counts verifications to which the target went on by itself, by what became of them."""

    def __init__(self, outcomes: Mapping[SequelOutcome, int]):
        self._outcomes = outcomes

    def collect(self) -> Iterable[Metric]:
        calls = CounterMetricFamily(
            "specpair_target_continuations",
            "Verifications to which the target went on by itself: their call came (used), or never did (dropped).",
            labels=["outcome"],
        )
        for outcome in SequelOutcome:
            calls.add_metric([outcome], self._outcomes.get(outcome, 0))
        yield calls


class MasksCollector(Collector):
    """Counts the rows of structured outputs that got a mask, and what the masks took."""

    def __init__(self, masks: MaskMaker):
        self._masks = masks

    def collect(self) -> Iterable[Metric]:
        rows = "Rows of structured outputs for which it was found which tokens may come."
        yield CounterMetricFamily("specpair_target_masked_rows", rows, value=self._masks.row_count)
        seconds = "Time of finding that, in threads beside the forward passes."
        yield CounterMetricFamily("specpair_target_mask_seconds", seconds, value=self._masks.seconds)

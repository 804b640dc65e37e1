"""Metrics of translation, read at each scrape."""

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from specpair.model_info import VocabularyTranslation

NAME_LENGTH = 12
"""Digits of a vocabulary's name in a label."""


class TranslationCollector(Collector):
    """The targets with another vocabulary that a draft translates for."""

    def __init__(self, facts: Callable[[], Iterable[VocabularyTranslation]]):
        self._facts = facts

    def collect(self) -> Iterable[Metric]:
        overlaps = GaugeMetricFamily(
            "specpair_vocabulary_overlap",
            "Share of the draft's tokens of a text that a target with another vocabulary has, too.",
            labels=["method", "target_vocabulary"],
        )
        for facts in self._facts():
            overlaps.add_metric([facts.method, facts.target_vocabulary[:NAME_LENGTH]], facts.overlap)
        yield overlaps
